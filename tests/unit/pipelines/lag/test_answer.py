"""Lag in unusual cases: impossible offsets, clocks that step, deleted segments."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.answer import lag_of_lake
from commitlake.pipelines.lag.measure import Choice
from commitlake.pipelines.snapshot.append import append_progress
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from tests.support.indexed_stores import write_indexed_store
from tests.support.lag_places import WRITTEN, lag_rows, places_of, put_offsets, stored
from tests.support.lakes import GrowingLake

START = datetime.datetime(2023, 11, 15, tzinfo=datetime.UTC)


def progress(second: int, offset: int, **more: Any) -> StoreSnapshot:
    """A snapshot of one group in one queue."""
    position = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    taken = START + datetime.timedelta(seconds=second)
    return StoreSnapshot(
        "broker-a", SnapshotSource.BROKER, {OffsetKind.GROUP: taken}, {position: offset}, log_end=1, log_start=0, **more
    )


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of ten messages, one each second."""
    growing = GrowingLake(tmp_path)
    growing.write(stored("orders", second) for second in range(10))
    growing.archive()
    return growing


def test_an_offset_before_the_oldest_message_is_lost_and_existing_ones_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, lake = write_indexed_store(tmp_path / "broker-a"), tmp_path / "lake"
    put_offsets(root, "consumerOffset.json", {"topic-1@late": {0: 2}})
    run = ["--store", str(root), "--lake", str(lake), "--quiet"]
    assert archive([*run, "--local", "--no-quality"]) == 0
    (before,) = lag_rows(capsys, "--lake", str(lake))
    for segment in sorted((root / "commitlog").iterdir())[:3]:
        segment.unlink()
    put_offsets(root, "consumerOffset.json", {"topic-1@late": {0: 3}})
    later = WRITTEN + datetime.timedelta(minutes=1)
    (root / "config" / "consumerOffset.json").touch()
    assert snapshot(run) == 0
    for arguments in (["--lake", str(lake)], ["--store", str(root)]):
        (row,) = lag_rows(capsys, *arguments)
        assert row["as_of"] > f"{later:%Y}"
        assert row["verdict"] == "lost"
        assert 0 < row["messages_max"] < before["messages_max"] - 1
        assert row["messages_max"] == row["end"] - int(row["notes"][0].split("before ")[1].split()[0])


def test_an_empty_queue_whose_messages_were_all_deleted_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([stored("orders", 1)])
    put_offsets(growing.store, "consumerOffset.json", {"gone@billing": {0: 7}})
    for arguments in places_of(growing).values():
        (row,) = lag_rows(capsys, *arguments)
        assert (row["messages_max"], row["end"], row["verdict"]) == (0, None, "ok")
        assert "no message of this queue is known" in row["notes"][0]


def test_a_clock_that_was_ahead_gives_no_negative_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    growing = GrowingLake(tmp_path)
    # The clock is set back by an hour after the second message, and the offsets are written a minute after the last.
    growing.write(stored("orders", second) for second in (4139, 4140, 540))
    put_offsets(growing.store, "consumerOffset.json", {"orders@billing": {0: 0}})
    for arguments in places_of(growing).values():
        (row,) = lag_rows(capsys, *arguments)
        # Messages with a store time after the moment are not counted for it.
        assert (row["messages_max"], row["end"], row["time_lag_s_max"]) == (1, 3, 60.0)


def test_late_and_repeated_snapshots_do_not_change_the_lag(growing: GrowingLake) -> None:
    for second, offset in ((5, 4), (9, 8), (7, 1), (9, 2), (5, 4)):
        append_progress(growing.lake, progress(second, offset))
    (row,) = lag_of_lake(growing.lake, None, Choice()).rows
    assert (row.offset.low, row.messages.low, row.messages.high) == (8, 2, 2)
    (row,) = lag_of_lake(growing.lake, START + datetime.timedelta(seconds=7), Choice()).rows
    assert (row.offset.low, row.offset.high) == (4, 8)


def test_a_group_reset_between_two_snapshots_has_wide_bounds(growing: GrowingLake) -> None:
    for second, offset in ((3, 3), (5, 5), (9, 3)):
        append_progress(growing.lake, progress(second, offset))
    (row,) = lag_of_lake(growing.lake, START + datetime.timedelta(seconds=7), Choice()).rows
    assert (row.messages.low, row.messages.high) == (0, 8)
    assert str(row.judged.verdict) == "rewound"
    assert "the group's offset was set back between these two snapshots, so it may have been anywhere" in row.notes


def test_a_broadcasting_group_without_offsets_is_named(growing: GrowingLake) -> None:
    taken = START + datetime.timedelta(seconds=9)
    wanted = Subscription("TAG", "*", 1, message_model="BROADCASTING", members=())
    found = {GroupTopic("radio", "orders"): wanted, GroupTopic("billing", "orders"): wanted}
    append_progress(growing.lake, progress(9, 4, subscribed_as_of=taken, subscriptions=found))
    answer = lag_of_lake(growing.lake, None, Choice())
    (group,) = answer.broadcasting
    assert str(group).startswith("broker-a: radio broadcasts orders: each of its clients keeps its own offsets, so")
    assert "the group broadcasts: its clients keep their own offsets" in answer.rows[0].notes
    assert not lag_of_lake(growing.lake, None, Choice(groups=["billing"])).broadcasting
