"""Real servers for the integration tests: what runs long is made once a session.

Two processes run the tests, as most of the time one of them waits for a server; a file's tests are kept in one of them,
with the servers that they share. A test that measures seconds is marked `timed` and runs by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import rocketmq
from tests.servers.recording import RecordedStore, recorded
from tests.servers.rocketmq import VERSIONS, BrokerOptions, RocketMQ

StartBroker = Callable[..., RocketMQ]


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
    return recorded(rocketmq_version, tmp_path_factory.mktemp(f"rocketmq-{rocketmq_version}-"))


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
