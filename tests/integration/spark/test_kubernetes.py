"""A job on a real API server of Kubernetes: with its account's rights it gets executors in pods of their own."""

from __future__ import annotations

import os
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


def start_job(kubernetes: Kubernetes, name: str) -> None:
    """Create the pod that the CronJob's job would have."""
    spec: dict[str, Any] = pod_spec("CronJob", NAME)
    kubernetes.create(f"{CORE}/pods", {"metadata": {"name": name}, "spec": spec})


def executors(pods: Pods, job: str) -> list[str]:
    """Return the names of the executors that the server has."""
    return [name for name in pods.names() if name != job]


def check_lake(pods: Pods, here: Path) -> None:
    """Check that the lake equals one of this machine."""
    store = pods.claims / "rocketmq-stores" / "broker-a" / "store"
    arguments = ["--store", str(store), "--broker", "broker-a", "--lake", str(here), "--local", "--quiet"]
    assert archive.main(arguments) == 0
    check_equal(pods.claims / "commitlake-lake", here)


def test_a_job_archives_with_executors_and_leaves_none(kubernetes: Kubernetes, pods: Pods, tmp_path: Path) -> None:
    start_job(kubernetes, "first")
    wait_until(lambda: pods.exit_code("first") is not None, PATIENCE_SECONDS)
    assert pods.exit_code("first") == 0, pods.output("first")
    assert len(pods.processes) > 1
    wait_until(lambda: not executors(pods, "first"), PATIENCE_SECONDS)
    maps = kubernetes.ask(f"{CORE}/configmaps")["items"]
    assert {one["metadata"]["name"] for one in maps} == CONFIG_MAPS.keys()
    check_lake(pods, tmp_path / "here")


def test_a_killed_executor_is_replaced(kubernetes: Kubernetes, pods: Pods, tmp_path: Path) -> None:
    start_job(kubernetes, "second")
    wait_until(lambda: len(pods.processes) > 1, PATIENCE_SECONDS)
    killed = next(name for name in pods.processes if name != "second")
    os.kill(pods.processes[killed].pid, signal.SIGKILL)
    wait_until(lambda: pods.exit_code("second") is not None, PATIENCE_SECONDS)
    assert pods.exit_code("second") == 0, pods.output("second")
    check_lake(pods, tmp_path / "here")
