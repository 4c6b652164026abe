"""A clock and a small open store in JMQ's layout for tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalStore
from tests.support.journal_stores import SMALL
from tests.support.small_stores import Clock


@pytest.fixture
def store(root: Path, clock: Clock) -> Iterator[JournalStore]:
    """A small store on `clock`."""
    with JournalStore.open(root, SMALL, clock=clock) as opened:
        yield opened
