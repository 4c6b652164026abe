"""Fixtures for a real HDFS and its folders, which a conftest or a test imports."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from commitlake.connectors.storage import hdfs_clients
from tests.servers.hdfs import HdfsCluster


@pytest.fixture(scope="session")
def hdfs_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """Yield the cluster; a test that kills a part of it must start it again."""
    with HdfsCluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def hadoop_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set a user's environment without settings of Hadoop."""
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "HADOOP_PROXY_USER"):
        monkeypatch.delenv(name, raising=False)
    hdfs_clients.forget_clients()
    yield
    hdfs_clients.forget_clients()


@pytest.fixture
def copy(hdfs_cluster: HdfsCluster) -> str:
    """Return the URI of a folder that does not exist yet."""
    return f"{hdfs_cluster.uri}/logs-{secrets.token_hex(6)}/brokers/copy"
