"""A broker whose store has JMQ's layout, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from tests.support.brokers import Peer
from tests.support.jmq_brokers import open_jmq_broker
from tests.support.small_stores import Clock


@pytest.fixture
def dispatcher(root: Path, clock: Clock) -> Iterator[Dispatcher]:
    """A broker on a small store."""
    opened = open_jmq_broker(root, clock)
    with opened.broker.store:
        yield opened


@pytest.fixture
def store(dispatcher: Dispatcher) -> JmqStore:
    """The broker's store."""
    assert isinstance(dispatcher.broker.store, JmqStore)
    return dispatcher.broker.store


@pytest.fixture
def peer(dispatcher: Dispatcher) -> Peer:
    """A client of the broker."""
    return Peer(dispatcher)
