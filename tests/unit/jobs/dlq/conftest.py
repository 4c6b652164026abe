"""Fixtures: broker_lite in its own process, and a lake with the dead letters of a group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.support.dead_letters import letters_of
from tests.support.lakes import GrowingLake
from tests.support.replays import ReplayWorld, target_client

_numbers = itertools.count()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerLite]:
    """The target broker, which retries after a second or an hour."""
    options = (*SMALL_FILES, "--delay-levels", "1s 1h")
    with BrokerLite(tmp_path_factory.mktemp("target"), options=options) as running:
        yield running


@pytest.fixture(scope="package")
def client(broker: BrokerLite) -> Iterator[TargetClient]:
    """Clients of the target broker."""
    with target_client(broker.name_server_address) as made:
        yield made


@pytest.fixture
def group() -> str:
    """A consumer group that no other test uses."""
    return f"billing-{next(_numbers)}"


@pytest.fixture
def world(tmp_path: Path, broker: BrokerLite, client: TargetClient, group: str) -> ReplayWorld:
    """A lake with dead letters of the group, with bodies of two shapes in turn, and their topic."""
    growing = GrowingLake(tmp_path)
    made = ReplayWorld(growing.lake, broker.name_server_address, client)
    growing.write(letters_of(group, made.topic, 8))
    growing.archive()
    made.make_topic()
    return made
