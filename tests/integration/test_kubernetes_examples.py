"""Each container of the example manifests for Kubernetes is started once, as a process, on a real store."""

from __future__ import annotations

import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.connectors.lake.lake import Lake
from tests.support.kubernetes_manifests import POD_IP, Machine, containers, pod_spec, stop
from tests.support.logs import messages
from tests.support.process_trees import kill_tree
from tests.support.waiting import wait_until

OPTIONS = StoreOptions(segment_size_bytes=1 << 16, index_slots=100, index_entries=400)
PATIENCE_SECONDS = 240
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Volumes, with the store of one broker that has 50 messages.

    Their paths are short: the jobs make sockets in the volume `tmp`, and a socket's path has at most 107 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="pods-") as folder:
        found = Machine(Path(folder))
        _send(found, 50, seed=1)
        yield found


@pytest.mark.long("these jobs run each time; here they have the arguments of their manifests")
def test_the_cron_jobs_archive_audit_and_maintain_and_metrics_answer_probes(machine: Machine) -> None:
    for name in ("archive", "maintain"):
        for container in containers(pod_spec("CronJob", name)):
            code, output = machine.run(container)
            assert code == 0, output
    assert _archived(machine) == 50

    pod = pod_spec("Deployment", "metrics")
    (container,) = pod["containers"]
    process = machine.start(container)
    try:
        _wait_until_started(process, container)
        for probe in PROBES:
            _check_probe(container, probe)
        assert b'commitlake_archive_end_offset{broker="broker-a"' in _check_probe(container, "readinessProbe")
        assert stop(process, pod)[0] == 0
    finally:
        _close(process)
    assert machine.written_beside_volumes() == []


@pytest.mark.long("a stream is archived each time; here it is one with the arguments of its manifest")
def test_the_follower_archives_what_comes_later_and_stops_in_its_grace_period(machine: Machine) -> None:
    pod = pod_spec("Deployment", "follow")
    (container,) = pod["containers"]
    process = machine.start(container)
    try:
        _wait_while_it_runs(process, lambda: _archived(machine) == 50)
        _send(machine, 20, seed=2)
        _wait_while_it_runs(process, lambda: _archived(machine) == 70)
        code, output = stop(process, pod)
        assert code == 0, output
    finally:
        _close(process)
    assert machine.written_beside_volumes() == []


def _send(machine: Machine, count: int, seed: int) -> None:
    with MessageStore.open(machine.stores / "broker-a" / "store", OPTIONS) as broker:
        for message in messages(count, seed=seed):
            broker.put(message)


def _archived(machine: Machine) -> int:
    path = Lake(str(machine.lake)).uri("messages")
    if not DeltaTable.is_deltatable(path):
        return 0
    return int(DeltaTable(path).to_pyarrow_table(columns=["physical_offset"]).num_rows)


def _wait_while_it_runs(process: subprocess.Popen[str], holds: Any) -> None:
    def happened() -> bool:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0])
        return bool(holds())

    wait_until(happened, PATIENCE_SECONDS, look_seconds=0.2)


def _wait_until_started(process: subprocess.Popen[str], container: dict[str, Any]) -> None:
    def answers() -> bool:
        try:
            _check_probe(container, "startupProbe")
        except OSError:
            return False
        return True

    _wait_while_it_runs(process, answers)


def _check_probe(container: dict[str, Any], name: str) -> bytes:
    """Ask as a probe does: each answer but an error is a success, within the probe's time."""
    probe = container[name]
    (port,) = (port["containerPort"] for port in container["ports"] if port["name"] == probe["httpGet"]["port"])
    url = f"http://{POD_IP}:{port}{probe['httpGet']['path']}"
    with urllib.request.urlopen(url, timeout=probe.get("timeoutSeconds", 1)) as answer:
        content: bytes = answer.read()
    return content


def _close(process: subprocess.Popen[str]) -> None:
    """Kill a process and its children."""
    if process.poll() is None:
        kill_tree(process.pid)
        process.communicate()
