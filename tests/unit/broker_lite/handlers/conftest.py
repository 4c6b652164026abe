"""An open broker, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from tests.support.brokers import Peer, open_broker
from tests.support.small_stores import Clock


@pytest.fixture
def dispatcher(root: Path, clock: Clock) -> Iterator[Dispatcher]:
    """A broker on a small store."""
    opened = open_broker(root, clock)
    with opened.broker.store:
        yield opened


@pytest.fixture
def peer(dispatcher: Dispatcher) -> Peer:
    """A client of the broker."""
    return Peer(dispatcher)
