"""Rows of `lag_minutes`: which minutes are computed, and what is carried to the following ones."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.lag.lag_at_many_times import StoreLag
from commitlake.pipelines.lag_minutes import minute_computation
from commitlake.pipelines.lag_minutes.minute_computation import (
    MinuteRange,
    compute_minute_rows,
    first_minute_at,
    last_minute_at,
    minute_time,
    row_at_later_minute,
    split_by_hour,
)
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

FIRST = MIDNIGHT_MS // 60_000
SECOND = datetime.timedelta(seconds=1)
OWNER = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)


@pytest.mark.parametrize(
    ("time", "first", "last"),
    [
        (minute_time(7), 7, 7),
        (minute_time(7) + datetime.timedelta(microseconds=1), 8, 7),
        (minute_time(8) - datetime.timedelta(microseconds=1), 8, 7),
        (minute_time(0) - SECOND, 0, -1),
    ],
)
def test_times_are_rounded_to_minutes(time: datetime.datetime, first: int, last: int) -> None:
    assert (first_minute_at(time), last_minute_at(time)) == (first, last)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (60, 119, [(60, 119)]),
        (59, 60, [(59, 59), (60, 60)]),
        (61, 61, [(61, 61)]),
        (61, 60, []),
        (0, 180, [(0, 59), (60, 119), (120, 179), (180, 180)]),
    ],
)
def test_ranges_are_divided_at_whole_hours(first: int, last: int, expected: list[tuple[int, int]]) -> None:
    assert [(part.first, part.last) for part in split_by_hour("broker-a", first, last)] == expected


@pytest.mark.parametrize(
    ("row", "least", "most"),
    [
        (
            {"messages_min": 1, "time_lag_s_min": 0.123, "time_lag_s_max": 56.789, "next_message_time": 1},
            60.123,
            116.789,
        ),
        ({"messages_min": 0, "time_lag_s_min": 0.0, "time_lag_s_max": 0.1, "next_message_time": 1}, 0.0, 60.1),
        ({"messages_min": 0, "time_lag_s_min": 0.0, "time_lag_s_max": None, "next_message_time": 1}, 0.0, None),
        ({"messages_min": 0, "time_lag_s_min": 0.0, "time_lag_s_max": 0.0, "next_message_time": None}, 0.0, 0.0),
    ],
)
def test_waiting_times_grow_while_nothing_changes(row: dict[str, Any], least: float, most: float | None) -> None:
    carried = row_at_later_minute({**row, "minute": minute_time(7), "end": 5}, minute_time(8))
    assert (carried["time_lag_s_min"], carried["time_lag_s_max"]) == (least, most)
    assert (carried["minute"], carried["end"]) == (minute_time(8), 5)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The minutes that are computed, counted from midnight."""
    found: list[int] = []
    rows_at = StoreLag.lag_rows_at

    def counted(lag: StoreLag, time: datetime.datetime) -> Any:
        found.append(last_minute_at(time) - FIRST)
        return rows_at(lag, time)

    monkeypatch.setattr(StoreLag, "lag_rows_at", counted)
    return found


def snapshot(growing: GrowingLake, minute: float, offset: int, *, has_client: bool = False) -> None:
    taken = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000 + minute * 60, datetime.UTC)
    member = Member("client-1", "10.0.0.9:4711", "JAVA", 495, "V5_5_0")
    subscribed = Subscription("TAG", "*", 1, "PUSH", "CLUSTERING", "LAST", (member,))
    source = SnapshotSource.BROKER if has_client else SnapshotSource.FILE
    clients = {GroupTopic("billing", "orders"): subscribed} if has_client else {}
    times = {OffsetKind.GROUP: taken}
    progress = StoreSnapshot(
        "broker-a", source, times, {OWNER: offset}, taken if has_client else None, clients, log_end=len(growing.log)
    )
    append_snapshot(growing.lake, progress)


def rows_between(lake: Lake, first: int, last: int) -> list[Any]:
    return list(compute_minute_rows(lake.pin_versions(), MinuteRange("broker-a", FIRST + first, FIRST + last)))


def test_minutes_in_which_nothing_happens_are_not_computed(tmp_path: Path, computed: list[int]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS)])
    growing.archive()
    snapshot(growing, 1, 1)
    growing.write([new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + 10 * 60_000 + 1)])
    growing.archive()
    snapshot(growing, 14.5, 2)
    snapshot(growing, 40, 2)
    rows = rows_between(growing.lake, 2, 30)
    # The minute before, that after the snapshot, those while a message may wait, and those after the second snapshot.
    assert computed == [1, 2, 11, 12, 13, 14, 15]
    assert [last_minute_at(row["minute"]) - FIRST for row in rows if row["kind"] == "group"] == [2, 11, 15]


def test_clients_are_forgotten_after_a_while_without_an_event(tmp_path: Path, computed: list[int]) -> None:
    growing = GrowingLake(tmp_path)
    growing.write([new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS)])
    growing.archive()
    snapshot(growing, 1, 1, has_client=True)
    snapshot(growing, 55, 1)
    rows = [row for row in rows_between(growing.lake, 1, 50) if row["kind"] == "group"]
    assert [(last_minute_at(row["minute"]) - FIRST, row["members"]) for row in rows] == [(1, 1), (22, None)]
    assert computed == [0, 1, 2, 21, 22]


def test_rows_are_sorted_as_maintain_merges_them() -> None:
    names = ("within_hour", "minute", "group", "topic", "queue_id")
    rows = [
        {
            "minute": minute_time(n % 2),
            "within_hour": n % 2 == 1,
            "group": "ab"[n // 2 % 2],
            "topic": "t",
            "queue_id": -n,
        }
        for n in range(8)
    ]
    table = minute_computation.sort_rows(
        minute_computation.SCHEMA.empty_table().from_pylist(rows, minute_computation.SCHEMA)
    )
    keys = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    assert keys == sorted(keys)
