"""`lag_minutes` has the figures of `lag --at`, however often and late it is updated, and wherever a run is killed."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.runtime.local_runner import ThreadRunner
from commitlake.pipelines.lag_minutes import backfill
from commitlake.pipelines.lag_minutes.backfill import AddedMinutes, backfill_lag_minutes
from commitlake.pipelines.lag_minutes.progress import read_progress
from commitlake.pipelines.repair.content_checksums import sum_table_contents
from commitlake.pipelines.snapshot.progress import (
    GroupTopic,
    OffsetKind,
    OffsetOwner,
    SnapshotSource,
    StoreSnapshot,
    Subscription,
)
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.times import from_ms
from tests.support.lagging_lakes import STEPS, growing_lake
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.minutes_of_lag import all_rows, check_minutes, computed_from_scratch, last_minutes

FIRST = MIDNIGHT_MS // 60_000
LAKES = [(0, 150_000), (5, 47_123)]
MORE_LAKES = [
    pytest.param(seed, every_ms, marks=pytest.mark.long("two random lakes run each time"))
    for seed, every_ms in [(5, 60_000), *itertools.product(range(12), (47_123, 150_000, 600_000))]
    if (seed, every_ms) not in LAKES
]
"""Seeds of random lakes, and the time between two snapshots in ms."""


class Killed(BaseException):
    """Ends a run like a kill."""


@pytest.mark.some_cases(1)
@pytest.mark.parametrize(("seed", "every_ms"), [*LAKES, *MORE_LAKES])
def test_the_figures_are_those_of_lag_at_each_minute(tmp_path: Path, seed: int, every_ms: int) -> None:
    """It is updated after each step: messages come late, offsets are set back, and groups come and go."""
    for number, lake in enumerate(growing_lake(tmp_path, seed, every_ms)):
        backfill_lag_minutes(lake)
        if number % 3 == 0 and lake.has_log("lag_minutes"):
            version = lake.table("lag_minutes").version()
            assert backfill_lag_minutes(lake) == AddedMinutes()
            assert lake.table("lag_minutes").version() == version
    minutes = range(FIRST, FIRST + (STEPS + 1) * every_ms // 60_000)
    assert check_minutes(lake, random.Random(seed).sample(minutes, min(6, len(minutes)))) > 0
    (contents,) = sum_table_contents(lake, ["lag_minutes"])
    assert (contents.has_difference, contents.expected is None) == (False, False)
    rows = all_rows(lake)
    assert rows == computed_from_scratch(lake) != []


def snapshot(growing: GrowingLake, minute: float, offset: int | None, log_end: int | None = None) -> None:
    """Add a snapshot of the group billing, which has no offset any more if that is None."""
    owner = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    taken = {OffsetKind.GROUP: from_ms(MIDNIGHT_MS + int(minute * 60_000))}
    offsets = {} if offset is None else {owner: offset}
    end = len(growing.log) if log_end is None else log_end
    append_snapshot(
        growing.lake, StoreSnapshot("broker-a", SnapshotSource.FILE, taken, offsets, log_end=end, log_start=0)
    )


def subscribe(growing: GrowingLake, minute: float, tags: str) -> None:
    """Add a snapshot of the group's subscription, from the store's files, which do not have its clients."""
    taken = from_ms(MIDNIGHT_MS + int(minute * 60_000))
    wanted = {GroupTopic("billing", "orders"): Subscription("TAG", tags, 1)}
    source = SnapshotSource.FILE
    progress = StoreSnapshot("broker-a", source, subscribed_as_of=taken, subscriptions=wanted)
    append_snapshot(growing.lake, progress)


def write(growing: GrowingLake, *minutes: float) -> None:
    """Store one message at each minute."""
    times = (MIDNIGHT_MS + int(minute * 60_000) for minute in minutes)
    growing.write(new_message(topic="orders", queue_id=0, born_timestamp=time) for time in times)


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A queue whose group consumes nothing from minute 1 to 59, then all; its last snapshot is at 2:05."""
    growing = GrowingLake(tmp_path)
    write(growing, 0, 0.5, 3.2, 58.9)
    growing.archive()
    subscribe(growing, 1, "*")
    snapshot(growing, 1, 1)
    snapshot(growing, 59, 1)
    snapshot(growing, 59.5, 4)
    snapshot(growing, 125, 4)
    return growing


@pytest.fixture
def brief(tmp_path: Path) -> GrowingLake:
    """A queue and its group from 0:55 to 1:06."""
    growing = GrowingLake(tmp_path)
    write(growing, 50, 55, 57, 63)
    growing.archive()
    for minute, offset in ((55.5, 1), (58, 1), (62, 3), (66, 4)):
        snapshot(growing, minute, offset)
    return growing


def shown(rows: Sequence[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    """Return the minute of each row of the group, counted from midnight, and the named columns."""
    found = (row for row in rows if row["kind"] == "group")
    ordered = sorted(found, key=lambda row: row["minute"])
    midnight = from_ms(MIDNIGHT_MS)
    return [((row["minute"] - midnight) // datetime.timedelta(minutes=1), *map(row.get, names)) for row in ordered]


def test_only_changes_and_whole_hours_have_rows(growing: GrowingLake) -> None:
    done = backfill_lag_minutes(growing.lake)
    rows = all_rows(growing.lake)
    assert (done.minutes, done.rows, done.repeated) == (125, len(rows), 0)
    names = ("offset_min", "messages_min", "messages_max", "consumed", "verdict")
    assert shown(rows, *names) == [
        (1, 1, 1, 1, None, "unknown"),
        (4, 1, 2, 2, 0, "unknown"),
        (59, 1, 3, 3, 0, "stalled"),
        (60, 4, 0, 0, 3, "ok"),
        (120, 4, 0, 0, 0, "ok"),
    ]
    assert check_minutes(growing.lake, [FIRST, *range(FIRST + 1, FIRST + 6), *range(FIRST + 57, FIRST + 62)])


def test_a_group_that_is_gone_has_a_last_row_without_figures(growing: GrowingLake) -> None:
    snapshot(growing, 126.5, None)
    write(growing, 127)
    growing.archive()
    snapshot(growing, 128, None)
    backfill_lag_minutes(growing.lake)
    rows = shown(all_rows(growing.lake), "messages_min", "messages_max", "verdict")
    assert rows[-2:] == [(126, 0, 4, "rewound"), (127, None, None, None)]
    assert check_minutes(growing.lake, range(FIRST + 124, FIRST + 129))


@pytest.mark.long("the history of filters is tested each time without the table")
def test_a_filter_that_is_known_late_counts_from_the_groups_first_minute_on(growing: GrowingLake) -> None:
    backfill_lag_minutes(growing.lake)
    subscribe(growing, 130, "paid")
    done = backfill_lag_minutes(growing.lake)
    assert done == AddedMinutes()  # it has had another one before
    other = GroupTopic("audit", "orders")
    owner = OffsetOwner(OffsetKind.GROUP, "audit", "orders", 0)
    taken = {OffsetKind.GROUP: from_ms(MIDNIGHT_MS + 131 * 60_000)}
    snapshot_of_two = StoreSnapshot("broker-a", SnapshotSource.FILE, taken, {owner: 0}, log_end=len(growing.log))
    append_snapshot(growing.lake, snapshot_of_two)
    assert backfill_lag_minutes(growing.lake).repeated == 0
    subscribed = StoreSnapshot(
        "broker-a",
        SnapshotSource.FILE,
        subscribed_as_of=from_ms(MIDNIGHT_MS + 132 * 60_000),
        subscriptions={other: Subscription("TAG", "*", 1)},
    )
    append_snapshot(growing.lake, subscribed)
    done = backfill_lag_minutes(growing.lake)
    assert 0 < done.repeated < 10
    assert all_rows(growing.lake) == computed_from_scratch(growing.lake)


def test_messages_that_are_archived_late_are_counted(growing: GrowingLake) -> None:
    write(growing, 126, 127)
    snapshot(growing, 128, 4)
    backfill_lag_minutes(growing.lake)
    assert last_minutes(growing.lake) == {"broker-a": FIRST + 125}  # later messages are not archived yet
    growing.archive()
    assert backfill_lag_minutes(growing.lake).minutes == 3
    assert shown(all_rows(growing.lake), "messages_max")[-2:] == [(126, 1), (127, 2)]
    write(growing, 100)  # the clock was set back
    growing.archive()
    done = backfill_lag_minutes(growing.lake)
    assert (done.minutes, done.repeated) == (29, 29)
    assert all_rows(growing.lake) == computed_from_scratch(growing.lake)


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.parametrize("commits", range(3))
def test_a_run_that_is_killed_is_completed(
    brief: GrowingLake, monkeypatch: pytest.MonkeyPatch, commits: int, *, is_committed: bool
) -> None:
    """It is killed before or after one of its commits: that which removes rows, and one for each hour."""
    monkeypatch.setattr(backfill, "_HOURS_OF_COMMIT", 1)
    backfill_lag_minutes(brief.lake)
    before = all_rows(brief.lake)
    write(brief, 57.5)
    brief.archive()
    made = iter(range(commits))

    def killed(*arguments: Any, **more: Any) -> bool:
        if next(made, None) is None:
            if is_committed:
                commit_with_transaction(*arguments, **more)
            raise Killed
        return commit_with_transaction(*arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(backfill, "commit_with_transaction", killed)
        with pytest.raises(Killed):
            backfill_lag_minutes(brief.lake)
    (last,) = last_minutes(brief.lake).values()
    assert last == FIRST + ([66, 57, 59, 66][commits + is_committed])
    if commits or is_committed:  # what it leaves is complete up to an earlier minute
        assert check_minutes(brief.lake, range(FIRST + 55, last + 1))
    else:
        assert all_rows(brief.lake) == before
    backfill_lag_minutes(brief.lake)
    rows = all_rows(brief.lake)
    assert rows == computed_from_scratch(brief.lake) != before


def test_of_two_runs_at_once_one_is_refused(brief: GrowingLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: Any) -> Any:
        found = read_progress(*arguments)
        monkeypatch.setattr(backfill, "read_progress", read_progress)
        backfill_lag_minutes(brief.lake)
        return found

    monkeypatch.setattr(backfill, "read_progress", interrupted)
    with pytest.raises(ConcurrentRunError, match="another run committed first"):
        backfill_lag_minutes(brief.lake)
    rows = all_rows(brief.lake)
    assert backfill_lag_minutes(brief.lake) == AddedMinutes()
    assert rows == computed_from_scratch(brief.lake)


def test_tasks_may_run_in_parallel(brief: GrowingLake) -> None:
    totals: list[int] = []
    shown: list[int] = []

    def show_progress(total: int) -> AbstractContextManager[Callable[[int], None]]:
        totals.append(total)
        return nullcontext(shown.append)

    done = backfill_lag_minutes(brief.lake, ThreadRunner(2), show_progress)
    assert (done.minutes, totals, sum(shown)) == (11, [11], 11)
    rows = all_rows(brief.lake)
    assert rows == computed_from_scratch(brief.lake)


def test_a_lake_without_snapshots_lacks_nothing(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    write(growing, 1)
    growing.archive()
    assert backfill_lag_minutes(growing.lake) == AddedMinutes()
    with pytest.raises(NoTableError):
        growing.lake.table("lag_minutes")
    snapshot(growing, 2, 1, log_end=1 << 40)  # nothing of that time is archived
    assert backfill_lag_minutes(growing.lake) == AddedMinutes()


def test_a_place_without_a_lake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not exist"):
        backfill_lag_minutes(Lake(str(tmp_path / "none")))
