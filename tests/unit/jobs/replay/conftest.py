"""Fixtures: broker_lite in its own process, to which all tests of `replay` send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, prepared_lake, shop_messages
from tests.support.replays import ReplayWorld, target_client

MESSAGES = 400


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerLite]:
    """The target broker."""
    with BrokerLite(tmp_path_factory.mktemp("target")) as running:
        yield running


@pytest.fixture(scope="package")
def client(broker: BrokerLite) -> Iterator[TargetClient]:
    """Clients of the target broker."""
    with target_client(broker.name_server_address) as made:
        yield made


def _archive_shop(growing: GrowingLake) -> None:
    growing.write(shop_messages(MESSAGES))
    growing.archive()


@pytest.fixture
def world(tmp_path: Path, broker: BrokerLite, client: TargetClient) -> ReplayWorld:
    """A lake with messages of five topics, and a topic of the broker's with four queues."""
    growing = prepared_lake(tmp_path, _archive_shop)
    made = ReplayWorld(growing.lake, broker.name_server_address, client)
    made.make_topic()
    return made
