"""Snapshots that an archive takes while it follows its stores."""

from __future__ import annotations

import datetime
import shutil
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.archive import offset_snapshots
from commitlake.jobs.archive.offset_snapshots import PeriodicSnapshots
from commitlake.pipelines.archive.run import Config
from tests.support.lakes import archive_store, rows_of
from tests.support.logs import messages, open_segment, write_store

OFFSETS = '{"offsetTable":{"orders@mail":{0:%d}}}'


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """A folder with the store of one broker, whose consumer is at offset 1."""
    write_broker(tmp_path / "stores", "a")
    return tmp_path / "stores"


@pytest.fixture
def lake(tmp_path: Path, stores: Path) -> Lake:
    """A lake with that store."""
    made = Lake(str(tmp_path / "lake"))
    archive_store(stores / "a", made)
    return made


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths whose stores were listed."""
    found: list[str] = []

    def listed(path: str, *rest: Any, **named: Any) -> object:
        found.append(path)
        return find_stores(path, *rest, **named)

    monkeypatch.setattr(offset_snapshots, "find_stores", listed)
    return found


def write_broker(stores: Path, broker: str, offset: int = 1) -> None:
    root = write_store(stores / broker, [(0, open_segment(messages(4), 4096))])
    write_offset(stores, offset, broker)
    assert root.exists()


def write_offset(stores: Path, offset: int, broker: str = "a") -> None:
    path = stores / broker / "config" / "consumerOffset.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(OFFSETS % offset)


def kept(lake: Lake) -> list[tuple[str, int | None]]:
    """Return the brokers and offsets in the lake, in the order in which they were added."""
    return sorted(
        (row["broker"], row["offset"]) for row in rows_of(lake.uri("consumer_offsets")) if row["group"] == "mail"
    )


def test_each_snapshot_after_the_first_lists_the_stores_once(stores: Path, lake: Lake, listings: list[str]) -> None:
    repeated = PeriodicSnapshots(Config(f"{stores}/*", lake), datetime.timedelta(0))
    for number in (1, 2, 3):
        write_offset(stores, number)
        repeated.take_snapshot_if_due()
        assert len(listings) == number + 1
    assert kept(lake) == [("a", 1), ("a", 2), ("a", 3)]


def test_a_new_store_is_in_the_next_snapshot(stores: Path, lake: Lake) -> None:
    repeated = PeriodicSnapshots(Config(f"{stores}/*", lake), datetime.timedelta(0))
    repeated.take_snapshot_if_due()
    write_broker(stores, "b", 7)
    repeated.take_snapshot_if_due()
    repeated.take_snapshot_if_due()
    assert kept(lake) == [("a", 1), ("b", 7)]


def test_a_deleted_store_gets_no_new_snapshot(stores: Path, lake: Lake) -> None:
    write_broker(stores, "b", 7)
    repeated = PeriodicSnapshots(Config(f"{stores}/*", lake), datetime.timedelta(0))
    repeated.take_snapshot_if_due()
    shutil.rmtree(stores / "b")
    repeated.take_snapshot_if_due()
    assert kept(lake) == [("a", 1), ("b", 7)]


def test_no_snapshot_is_taken_of_a_store_without_messages(stores: Path, lake: Lake) -> None:
    (stores / "empty" / "commitlog").mkdir(parents=True)
    PeriodicSnapshots(Config(str(stores / "empty"), lake), datetime.timedelta(0)).take_snapshot_if_due()
    assert not Path(lake.uri("consumer_offsets")).exists()
