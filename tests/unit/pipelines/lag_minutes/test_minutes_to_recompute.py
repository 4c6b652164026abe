"""Which minutes of `lag_minutes` are computed, and which again, because rows for them came late."""

from __future__ import annotations

import datetime
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.lake.archive_commits import StoreProgress, read_last_commit
from commitlake.connectors.lake.store_progress import PulledProgress
from commitlake.jobs.maintain.command import main as maintain
from commitlake.pipelines.lag_minutes.backfill import TABLE, backfill_lag_minutes
from commitlake.pipelines.lag_minutes.minutes_to_recompute import find_minutes_to_compute, newest_versions
from commitlake.pipelines.lag_minutes.progress import MinutesProgress, read_progress
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.minutes_of_lag import last_minutes

FIRST = MIDNIGHT_MS // 60_000
OWNER = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)


def time_at(minute: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000 + minute * 60, datetime.UTC)


def snapshot(growing: GrowingLake, minute: float, offset: int, log_end: int | None) -> None:
    taken = {OffsetKind.GROUP: time_at(minute)}
    append_snapshot(
        growing.lake, StoreSnapshot("broker-a", SnapshotSource.FILE, taken, {OWNER: offset}, log_end=log_end)
    )


def subscribe(growing: GrowingLake, minute: float, group: str) -> None:
    wanted = {GroupTopic(group, "orders"): Subscription("TAG", "*", int(minute))}
    taken = time_at(minute)
    append_snapshot(
        growing.lake, StoreSnapshot("broker-a", SnapshotSource.FILE, subscribed_as_of=taken, subscriptions=wanted)
    )


def write(growing: GrowingLake, *minutes: float) -> None:
    times = (MIDNIGHT_MS + int(minute * 60_000) for minute in minutes)
    growing.write(new_message(topic="orders", queue_id=0, born_timestamp=time) for time in times)


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A store with snapshots from 0:01 to 0:20, all of whose minutes the table has."""
    growing = GrowingLake(tmp_path)
    write(growing, 0, 5)
    growing.archive()
    for minute, offset in ((1, 0), (10, 1), (20.5, 2)):
        snapshot(growing, minute, offset, len(growing.log))
    backfill_lag_minutes(growing.lake)
    assert last_minutes(growing.lake) == {"broker-a": FIRST + 20}
    return growing


def progress_of(growing: GrowingLake) -> MinutesProgress:
    return read_progress(growing.lake.table(TABLE), ["broker-a"])


def archived(growing: GrowingLake) -> dict[str, StoreProgress]:
    commit = read_last_commit(growing.lake)
    assert commit is not None
    return dict(commit.stores)


def minutes(growing: GrowingLake, progress: MinutesProgress | None = None) -> tuple[int, int]:
    """Return the first and last minute to compute, counted from midnight."""
    found = find_minutes_to_compute(growing.lake.pin_versions(), progress or progress_of(growing), archived(growing))
    return found["broker-a"].first - FIRST, found["broker-a"].last - FIRST


def test_nothing_is_computed_again_if_nothing_is_new(growing: GrowingLake) -> None:
    assert minutes(growing) == (21, 20)
    assert progress_of(growing).versions == newest_versions(growing.lake.pin_versions())


def test_new_snapshots_have_an_effect_after_the_one_before(growing: GrowingLake) -> None:
    snapshot(growing, 30, 2, len(growing.log) + 1)
    assert minutes(growing) == (21, 20)  # its messages are not archived
    snapshot(growing, 31, 1, None)  # nothing is known about its messages
    assert minutes(growing) == (21, 31)
    behind = progress_of(growing)
    late = replace(behind, versions={**behind.versions, "consumer_offsets": behind.versions["consumer_offsets"] - 1})
    assert minutes(growing, late) == (11, 31)  # the snapshot at 20:30 is new, that at minute 10 was there before


@pytest.mark.some_cases(2)
@pytest.mark.parametrize(("minute", "first"), [(12, 12), (12.01, 13), (0.2, 1), (33, 21)])
def test_late_messages_have_an_effect_from_their_time_on(growing: GrowingLake, minute: float, first: int) -> None:
    write(growing, minute)
    growing.archive()
    assert minutes(growing)[0] == first


def test_merged_files_are_not_new(growing: GrowingLake) -> None:
    growing.write([])
    for minute in (40, 41):
        write(growing, minute)
        growing.archive()
    before = progress_of(growing)
    assert maintain(["--lake", growing.lake.root, "--quiet"]) == 0
    assert newest_versions(growing.lake.pin_versions())["messages"] > before.versions["messages"]
    assert minutes(growing) == (21, 20)
    backfill_lag_minutes(growing.lake)
    assert minutes(growing) == (21, 20)


def test_the_first_subscription_of_a_group_holds_for_all_times_before(growing: GrowingLake) -> None:
    subscribe(growing, 22, "another")
    assert minutes(growing) == (21, 20)
    subscribe(growing, 23, "billing")
    assert minutes(growing) == (1, 20)
    backfill_lag_minutes(growing.lake)
    subscribe(growing, 15, "billing")  # older than the last one, so it is not stored
    assert minutes(growing) == (21, 20)
    wanted = {GroupTopic("billing", "orders"): Subscription("TAG", "paid", 24)}
    changed = StoreSnapshot("broker-a", SnapshotSource.FILE, subscribed_as_of=time_at(24), subscriptions=wanted)
    append_snapshot(growing.lake, changed)
    assert minutes(growing) == (21, 20)


def test_the_first_configuration_holds_for_all_times_before(growing: GrowingLake) -> None:
    path = growing.store / "config" / "topics.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"topicConfigTable": {"orders": {"topicName": "orders", "readQueueNums": 4}}}))
    growing.archive()
    assert minutes(growing) == (1, 20)
    backfill_lag_minutes(growing.lake)
    growing.configure(3)
    growing.archive()
    assert minutes(growing) == (21, 20)


def test_other_archived_topics_change_all_minutes(growing: GrowingLake) -> None:
    (known,) = archived(growing).values()
    some = {"broker-a": replace(known, pulled=PulledProgress(topics=("orders",)))}
    found = find_minutes_to_compute(growing.lake.pin_versions(), progress_of(growing), some)
    assert found["broker-a"] == (FIRST + 1, FIRST + 20)


def test_a_log_that_is_archived_later_completes_minutes_without_new_messages(growing: GrowingLake) -> None:
    known = progress_of(growing)
    (store,) = known.stores.values()
    less = replace(known, stores={"broker-a": replace(store, archived=store.archived - 1)})
    assert minutes(growing, less) == (1, 20)  # all snapshots refer to the end of the log


def test_versions_that_cannot_be_followed_change_all_minutes(growing: GrowingLake) -> None:
    known = progress_of(growing)
    later = replace(known, versions={**known.versions, "messages": known.versions["messages"] + 1})
    assert minutes(growing, later) == (1, 20)
    growing.lake.table("consumer_offsets").delete("as_of < '2001-01-01'")
    growing.lake.table("consumer_offsets").delete("queue_id = 0")  # another program has removed rows
    assert minutes(growing) == (1, 20)


def test_a_store_whose_messages_are_not_archived_has_no_minutes(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    write(growing, 0)
    growing.archive()
    snapshot(growing, 1, 0, len(growing.log) + 1)
    progress = read_progress(None, ["broker-a"])
    assert find_minutes_to_compute(growing.lake.pin_versions(), progress, archived(growing)) == {}
    snapshot(growing, 1.5, 1, len(growing.log))  # within the same minute as another one
    found = find_minutes_to_compute(growing.lake.pin_versions(), progress, archived(growing))
    assert found["broker-a"] == (FIRST + 1, FIRST + 1)
    shutil.rmtree(growing.store)
