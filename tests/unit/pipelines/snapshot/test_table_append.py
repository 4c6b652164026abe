"""Rows that a snapshot adds to `consumer_offsets` and `subscriptions`."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.snapshot_tables import (
    OFFSETS,
    SUBSCRIBED,
    append_snapshots,
    offsets_at_two_times,
    open_snapshots,
    snapshot_brokers,
    snapshot_version,
)
from commitlake.pipelines.snapshot import table_append
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    Member,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot, append_store_snapshots, group_snapshots
from commitlake.schemas.tables.offset_snapshots import CONSUMER_OFFSETS

START = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake."""
    paths = Lake(str(tmp_path / "lake"))
    open_messages_for_append(paths)
    return paths


def at(seconds: int) -> datetime.datetime:
    return START + datetime.timedelta(seconds=seconds)


def queue(topic: str, queue_id: int, group: str = "billing") -> OffsetOwner:
    return OffsetOwner(OffsetKind.GROUP, group, topic, queue_id)


def snapshot(seconds: int, offsets: dict[OffsetOwner, int], *kinds: OffsetKind, broker: str = "a") -> StoreSnapshot:
    return StoreSnapshot(broker, SnapshotSource.FILE, dict.fromkeys(kinds or (OffsetKind.GROUP,), at(seconds)), offsets)


def rows(lake: Lake, table: str = OFFSETS) -> list[dict[str, Any]]:
    opened = open_snapshots(lake, table)
    return [] if opened is None else opened.to_pyarrow_table().sort_by("as_of").to_pylist()


def places(lake: Lake) -> list[tuple[int, object, object, object]]:
    """Seconds, topic, queue and offset of each row, in order."""
    found = [((row["as_of"] - START).seconds, row["topic"] or "", row["queue_id"], row["offset"]) for row in rows(lake)]
    return sorted(found, key=repr)


def test_only_changed_offsets_are_added(lake: Lake) -> None:
    append_snapshot(lake, snapshot(0, {queue("orders", 0): 5, queue("orders", 1): 7}))
    added = append_snapshot(lake, snapshot(60, {queue("orders", 0): 5, queue("orders", 1): 9}))
    assert (added.read, added.moved, added.groups, added.as_of) == (2, 1, 1, at(60))
    assert places(lake) == [
        (0, "", None, None), (0, "orders", 0, 5), (0, "orders", 1, 7), (60, "", None, None), (60, "orders", 1, 9),
    ]  # fmt: skip


def test_a_snapshot_without_changes_adds_only_a_heartbeat(lake: Lake) -> None:
    for seconds in (0, 60, 599, 600, 660):
        append_snapshot(lake, snapshot(seconds, {queue("orders", 0): 5}))
    assert places(lake) == [(0, "", None, None), (0, "orders", 0, 5), (600, "", None, None)]


def test_a_snapshot_in_which_only_the_log_has_grown_is_kept(lake: Lake) -> None:
    for seconds, log_end in ((0, 100), (60, 100), (120, 900), (180, 900)):
        append_snapshot(lake, replace(snapshot(seconds, {queue("orders", 0): 5}), log_end=log_end, log_start=0))
    assert places(lake) == [(0, "", None, None), (0, "orders", 0, 5), (120, "", None, None)]
    assert [row["log_end"] for row in rows(lake) if row["topic"] is None] == [100, 900]


def test_a_file_that_is_as_old_as_before_is_as_new_as_its_reading_if_the_log_has_grown(lake: Lake) -> None:
    def read(seconds: int, offset: int, log_end: int) -> bool:
        written = snapshot(0, {queue("orders", 0): offset})
        return append_snapshot(lake, replace(written, log_end=log_end, log_start=0, read_at=at(seconds))).is_old

    assert [read(5, 5, 100), read(60, 5, 100), read(120, 5, 900), read(180, 5, 900)] == [False, True, False, True]
    assert read(240, 4, 950), "offsets of an older file that differ are older"
    assert places(lake) == [(0, "", None, None), (0, "orders", 0, 5), (120, "", None, None)]


def test_a_repeated_snapshot_adds_no_rows(lake: Lake) -> None:
    once = snapshot(0, {queue("orders", 0): 5})
    append_snapshot(lake, once)
    before = rows(lake)
    added = append_snapshot(lake, once)
    assert added.is_old
    assert added.moved == 0
    assert rows(lake) == before


def test_a_snapshot_older_than_the_last_one_adds_no_rows(lake: Lake) -> None:
    append_snapshot(lake, snapshot(60, {queue("orders", 0): 5}))
    assert append_snapshot(lake, snapshot(30, {queue("orders", 0): 4})).is_old
    assert len(rows(lake)) == 2


def test_a_removed_offset_is_a_row_without_an_offset(lake: Lake) -> None:
    append_snapshot(lake, snapshot(0, {queue("orders", 0): 5, queue("gone", 0): 1}))
    append_snapshot(lake, snapshot(60, {queue("orders", 0): 5}))
    append_snapshot(lake, snapshot(120, {queue("orders", 0): 5, queue("gone", 0): 0}))
    assert [place for place in places(lake) if place[1] == "gone"] == [
        (0, "gone", 0, 1), (120, "gone", 0, 0), (60, "gone", 0, None),
    ]  # fmt: skip


def test_stores_are_independent_of_each_other(lake: Lake) -> None:
    append_snapshot(lake, snapshot(60, {queue("orders", 0): 5}))
    added = append_snapshot(lake, snapshot(0, {queue("orders", 0): 9}, broker="b"))
    assert not added.is_old
    assert added.moved == 1


def test_rows_without_a_broker_add_no_store(lake: Lake) -> None:
    append_snapshot(lake, snapshot(0, {queue("orders", 0): 5}))
    append_rows(lake, "consumer_offsets", pa.table({"group": ["by another program"]}))
    opened = open_snapshots(lake, OFFSETS)
    assert opened is not None
    assert snapshot_brokers(opened, OFFSETS) == ["a"]


@pytest.mark.parametrize("changed", [{"queue_id": None}, {"queue_id": -1}, {"group": None}, {"offset": -(2**63)}])
def test_impossible_offsets_are_not_read_as_offsets_of_a_group(lake: Lake, changed: dict[str, Any]) -> None:
    append_snapshot(lake, snapshot(0, {queue("orders", 0): 5}))
    row = next(row for row in rows(lake) if row["topic"]) | {"topic": "other"} | changed  # by another program
    schema = arrow_schema(CONSUMER_OFFSETS)
    append_rows(lake, "consumer_offsets", pa.Table.from_pylist([row], schema))
    opened = open_snapshots(lake, OFFSETS)
    assert opened is not None
    assert offsets_at_two_times(opened, "a", OffsetKind.GROUP, at(9), at(0))["topic"].to_pylist() == ["orders"]


def test_the_clock_of_the_timers_is_kept_with_the_heartbeat_only(lake: Lake) -> None:
    clock = OffsetOwner(OffsetKind.TIMER_TIME, "", "rmq_sys_wheel_timer", 0)
    for seconds in (0, 1, 2, 600):
        append_snapshot(lake, snapshot(seconds, {clock: seconds}, OffsetKind.TIMER_TIME))
    assert [place[3] for place in places(lake) if place[1]] == [0, 600]


def test_the_clock_of_the_timers_is_kept_if_timers_have_arrived(lake: Lake) -> None:
    clock = OffsetOwner(OffsetKind.TIMER_TIME, "", "rmq_sys_wheel_timer", 0)
    wheel = OffsetOwner(OffsetKind.TIMER, "", "rmq_sys_wheel_timer", 0)
    for seconds, entered in ((0, 0), (1, 0), (2, 5), (3, 5)):
        offsets = {clock: seconds, wheel: entered}
        append_snapshot(lake, snapshot(seconds, offsets, OffsetKind.TIMER, OffsetKind.TIMER_TIME))
    assert [row["offset"] for row in rows(lake) if row["kind"] == clock.kind and row["topic"]] == [0, 2]


def test_the_end_of_the_log_is_kept_in_the_row_of_the_snapshot(lake: Lake) -> None:
    progress = StoreSnapshot("a", SnapshotSource.FILE, {OffsetKind.GROUP: at(0)}, {queue("orders", 0): 1}, log_end=4096)
    append_snapshot(lake, progress)
    assert {row["topic"]: row["log_end"] for row in rows(lake)} == {None: 4096, "orders": None}


def test_subscriptions_are_kept_when_they_change(lake: Lake) -> None:
    member = Member("c1", "10.0.0.1:5", "JAVA", 513, "V5_5_0")
    paid = Subscription("TAG", "paid", 1, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", (member,))
    all_tags = Subscription("TAG", "*", 2, members=(member,))
    taken = [{"orders": paid}, {"orders": paid}, {"orders": all_tags}, {}, {}]
    for number, wanted in enumerate(taken):
        subscriptions = {GroupTopic("billing", topic): one for topic, one in wanted.items()}
        append_snapshot(
            lake, StoreSnapshot("a", SnapshotSource.BROKER, subscribed_as_of=at(number), subscriptions=subscriptions)
        )
    found = [row for row in rows(lake, SUBSCRIBED) if row["group"]]
    assert [((row["as_of"] - START).seconds, row["expression"]) for row in found] == [(0, "paid"), (2, "*"), (3, None)]
    assert found[0]["members"] == [member._asdict()]
    assert found[2]["members"] is None


def test_a_place_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError):
        append_snapshot(Lake(str(tmp_path / "none")), snapshot(0, {}))


def test_stores_share_a_commit_and_only_changed_ones_add_rows(lake: Lake) -> None:
    append_snapshot(lake, snapshot(0, {queue("orders", 0): 5}))
    older, new = snapshot(0, {queue("orders", 0): 9}), snapshot(60, {queue("orders", 0): 7}, broker="b")
    added = append_store_snapshots(lake, [older, new, snapshot(60, {queue("orders", 1): 3}, broker="c")])
    assert [(each.broker, each.moved, each.is_old) for each in added] == [
        ("a", 0, True),
        ("b", 1, False),
        ("c", 1, False),
    ]
    opened = open_snapshots(lake, OFFSETS)
    assert opened is not None
    assert [snapshot_version(opened, broker) for broker in "abcd"] == [1, 1, 1, None]
    assert len(opened.history()) == 3  # its creation, the first store, the others
    again = append_store_snapshots(
        lake, [snapshot(60, {queue("orders", 0): 8}), snapshot(120, {queue("orders", 0): 8}, broker="b")]
    )
    assert [each.moved for each in again] == [1, 1]
    assert [row["offset"] for row in sorted(rows(lake), key=lambda row: row["as_of"]) if row["broker"] == "b"][-1] == 8


def test_groups_of_stores_are_bounded_by_their_number_and_by_their_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_append, "MAX_STORES", 3)
    monkeypatch.setattr(table_append, "_MAX_POSITIONS", 5)
    sizes = [1, 1, 1, 1, 4, 2, 9, 1]
    snapshots = [
        snapshot(0, {queue("orders", number): 5 for number in range(size)}, broker=str(place))
        for place, size in enumerate(sizes)
    ]
    groups = [[len(each.offsets) for each in group] for group in group_snapshots(snapshots)]
    assert groups == [[1, 1, 1], [1, 4], [2], [9], [1]]
    assert list(group_snapshots([])) == []


def test_store_that_another_process_changed_meanwhile_is_compared_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_snapshot(lake, snapshot(0, {queue("orders", 0): 5}, broker="b"))
    commit = append_snapshots
    attempts: list[int] = []

    def raced(*arguments: Any) -> bool:
        attempts.append(1)
        if len(attempts) == 1:
            monkeypatch.setattr(table_append, "append_snapshots", commit)
            append_snapshot(lake, snapshot(60, {queue("orders", 0): 6}, broker="b"))
            monkeypatch.setattr(table_append, "append_snapshots", raced)
        return commit(*arguments)

    monkeypatch.setattr(table_append, "append_snapshots", raced)
    added = append_store_snapshots(
        lake, [snapshot(60, {queue("orders", 0): 7}), snapshot(30, {queue("orders", 0): 4}, broker="b")]
    )
    assert len(attempts) == 2
    assert [(each.moved, each.is_old) for each in added] == [(1, False), (0, True)]
