"""Real servers for the integration tests: what runs long is made once a session.

Three processes run the tests, as most of the time one of them waits for a server; a file's tests are kept in one of
them, with the servers that they share. A test that measures seconds is marked `timed` and runs by itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connectors.spark_session import get_session
from tests.servers import rocketmq
from tests.servers.recording import RecordedStore, recorded
from tests.servers.rocketmq import VERSIONS, BrokerOptions, RocketMQ

StartBroker = Callable[..., RocketMQ]
LONGEST = (
    "test_killed_archive.py",
    "test_guard_real_broker.py",
    "test_stream_kills.py",
    "test_lake.py",
    "test_audit.py",
)
"""Files that take minutes begin first: at the end one process would have the last of them, and the other nothing."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put them first, in that order; all others as they are."""
    places = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session", params=VERSIONS)
def rocketmq_version(request: pytest.FixtureRequest) -> str:
    """Each RocketMQ version; a test that uses it, or what is made from it, runs once with each."""
    return str(request.param)


@pytest.fixture(scope="session")
def rocketmq_jars(rocketmq_version: str) -> Path:
    """The folder with the version's jars."""
    return rocketmq.rocketmq_jars(rocketmq_version)


@pytest.fixture(scope="session")
def recorded_store(rocketmq_version: str, tmp_path_factory: pytest.TempPathFactory) -> RecordedStore:
    """A store that a real broker of the version wrote, with a record of every kind. Read only."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # which all processes of a run share
    return recorded(rocketmq_version, folder / "recorded")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that a job would have, with Delta and the source; a process has one, whoever asks for it."""
    session = get_session("tests")
    yield session
    session.stop()


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """A function that starts a name server and a broker on a given store; both end with the test.

    Its arguments are `version, store, options=None, broker_port=None`; the file sizes in the
    options must be the store's.
    """
    with ExitStack() as running:

        def start(
            version: str,
            store: Path,
            options: BrokerOptions | None = None,
            broker_port: int | None = None,
        ) -> RocketMQ:
            folder = tmp_path / f"rocketmq-{version}-{store.name}"
            servers = RocketMQ(version, folder, store=store, options=options, broker_port=broker_port)
            # Killed, not stopped: whoever needs a clean stop calls it in the test.
            running.callback(servers.kill)
            return servers.start()

        yield start
