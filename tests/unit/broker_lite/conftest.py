"""A clock and a small open store for the tests of broker_lite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageStore
from tests.support.message_stores import SMALL
from tests.support.small_stores import Clock


@pytest.fixture(autouse=True)
def enough_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limits, so that no pull or delivery is cut on a busy machine."""
    for limit in ("pulling.SLICE_SECONDS", "pulling.UNFILTERED_SECONDS", "dispatcher.SLICE_SECONDS"):
        monkeypatch.setattr(f"commitlake.broker_lite.handlers.{limit}", 60)
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.PULL_SECONDS", 600)  # some slices


@pytest.fixture
def clock() -> Clock:
    """A clock that does not advance by itself."""
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a store that does not exist yet."""
    return tmp_path / "store"


@pytest.fixture
def store(root: Path, clock: Clock) -> Iterator[MessageStore]:
    """A small store on `clock`."""
    with MessageStore.open(root, SMALL, clock=clock) as opened:
        yield opened
