"""A real name server and broker of each version, shared by the client's tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, Producer, Puller
from tests.servers.rocketmq import BrokerOptions, RocketMQ

CLIENT_SERVERS = BrokerOptions(
    message_delay_level="1s 2s",
    transaction_timeout_ms=1000,
    transaction_check_interval_ms=1000,
    max_message_size_bytes=128 << 10,
    # A send that has waited for 0.2 s is refused otherwise, as it may have on a busy machine.
    extra={"enablePropertyFilter": True, "waitTimeMillsInSendQueue": 10_000},
)
_numbers = itertools.count()


@pytest.fixture(scope="package")
def servers(rocketmq_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A name server and a broker; ended here, as a broker that has had transactions keeps a processor busy."""
    folder = tmp_path_factory.mktemp(f"client-{rocketmq_version}-")
    with RocketMQ(rocketmq_version, folder, options=CLIENT_SERVERS, has_tls=True) as running:
        yield running


@pytest.fixture
def options(servers: RocketMQ) -> ClientOptions:
    """Client options with the addresses of the servers."""
    return ClientOptions(servers.name_server_address)


@pytest.fixture
def topic() -> str:
    """A topic that no other test has."""
    return f"Client{next(_numbers)}"


@pytest.fixture
def producer(options: ClientOptions) -> Iterator[Producer]:
    """A producer."""
    with Producer("ClientProducer", options) as made:
        yield made


@pytest.fixture
def puller(options: ClientOptions) -> Iterator[Puller]:
    """A puller."""
    with Puller("ClientPuller", options) as made:
        yield made


@pytest.fixture
def admin(options: ClientOptions) -> Iterator[Admin]:
    """Return a client for administration."""
    with Admin(options) as made:
        yield made
