"""A job on a real API server of Kubernetes: with its account's rights it gets executors in pods of their own."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.archive import command as archive
from tests.servers.kubernetes import Kubernetes
from tests.support.kubernetes_manifests import FOLDER, SETTINGS, documents, pod_spec
from tests.support.local_archives import check_equal, write_messages
from tests.support.pods import Pods
from tests.support.waiting import wait_until

NAME = "archive-on-executors"
NAMESPACE = "commitlake"
CORE = f"/api/v1/namespaces/{NAMESPACE}"
PATHS = {
    "ServiceAccount": f"{CORE}/serviceaccounts",
    "PersistentVolumeClaim": f"{CORE}/persistentvolumeclaims",
    "Service": f"{CORE}/services",
    "Role": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles",
    "RoleBinding": f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings",
    "CronJob": f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
}
CONFIG_MAPS = {"commitlake-config": SETTINGS, "commitlake-executor": "executor.yaml"}
PATIENCE_SECONDS = 600

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.long("its server is built for ten minutes, and a standalone cluster runs the same job each time"),
]


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    """A server with all objects of the example manifests."""
    with Kubernetes(tmp_path_factory.mktemp("kubernetes")) as server:
        server.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        server.create(PATHS["ServiceAccount"], {"metadata": {"name": "default"}})
        for name, file in CONFIG_MAPS.items():
            data = {file: (FOLDER / file).read_text()}
            server.create(f"{CORE}/configmaps", {"metadata": {"name": name}, "data": data})
        for manifest in FOLDER.glob("*.yaml"):
            for document in documents(manifest.name):
                if document["kind"] in PATHS:
                    server.create(PATHS[document["kind"]], document)
        yield server


@pytest.fixture
def pods(kubernetes: Kubernetes, tmp_path: Path) -> Iterator[Pods]:
    """The pods, and a broker's store in its volume."""
    with Pods(kubernetes, NAMESPACE, tmp_path / "pods") as found:
        write_messages(found.claims / "rocketmq-stores" / "broker-a" / "store")
        yield found


def start_job(kubernetes: Kubernetes, name: str, **changed: str) -> None:
    """Create the pod that the CronJob's job would have, with some settings of Spark changed."""
    spec: dict[str, Any] = pod_spec("CronJob", NAME)
    words: list[str] = spec["containers"][0]["args"]
    for setting, value in changed.items():
        (place,) = (number for number, word in enumerate(words) if word.startswith(f"spark.executor.{setting}="))
        words[place] = f"spark.executor.{setting}={value}"
    kubernetes.create(f"{CORE}/pods", {"metadata": {"name": name}, "spec": spec})


def check_nothing_is_left(kubernetes: Kubernetes, pods: Pods) -> None:
    """Check that a job which has ended has deleted its executors and their settings."""
    wait_until(lambda: not [name for name in pods.names() if "-exec-" in name], 30)
    maps = kubernetes.ask(f"{CORE}/configmaps")["items"]
    assert {one["metadata"]["name"] for one in maps} == CONFIG_MAPS.keys()


def check_lake(pods: Pods, here: Path) -> None:
    """Check that the lake equals one of this machine."""
    store = pods.claims / "rocketmq-stores" / "broker-a" / "store"
    arguments = ["--store", str(store), "--broker", "broker-a", "--lake", str(here), "--local", "--quiet"]
    assert archive.main(arguments) == 0
    check_equal(pods.claims / "commitlake-lake", here)


def test_a_job_archives_with_executors_and_leaves_none(kubernetes: Kubernetes, pods: Pods, tmp_path: Path) -> None:
    start_job(kubernetes, "first", instances="2")
    wait_until(lambda: pods.exit_code("first") is not None, PATIENCE_SECONDS)
    assert (pods.exit_code("first"), pods.output("first")) == (0, "")
    assert len(pods.processes) == 3
    check_nothing_is_left(kubernetes, pods)
    check_lake(pods, tmp_path / "here")


def test_a_killed_executor_is_replaced(kubernetes: Kubernetes, pods: Pods, tmp_path: Path) -> None:
    start_job(kubernetes, "second", instances="1")
    wait_until(lambda: len(pods.processes) == 2, PATIENCE_SECONDS)
    (killed,) = (name for name in pods.processes if name != "second")
    # The first stage checks the packages of the executors.
    wait_until(lambda: re.search(r"Running task \S+ in stage [1-9]", pods.output(killed)) is not None, PATIENCE_SECONDS)
    os.kill(pods.processes[killed].pid, signal.SIGKILL)
    wait_until(lambda: pods.exit_code("second") is not None, PATIENCE_SECONDS)
    assert pods.exit_code("second") == 0, pods.output("second")
    assert len(pods.processes) > 2
    check_nothing_is_left(kubernetes, pods)
    check_lake(pods, tmp_path / "here")
