"""Lag at past times, from snapshots, compared with the recorded lag at these times."""

from __future__ import annotations

import datetime
import random
from pathlib import Path
from typing import NamedTuple

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import OFFSETS, open_snapshots
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.offsets import WATCH, offsets_at
from commitlake.pipelines.lag.store_lag import Overrides, lag_of_lake
from commitlake.pipelines.lag.subscription_filter import ALL
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.selection import Selection
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

SECONDS = 900
STEP = 30
START = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
BILLING = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
IDLE = OffsetOwner(OffsetKind.GROUP, "idle", "orders", 0)


class Recording(NamedTuple):
    """Recorded state: for each second, stored messages and the group's offset."""

    lake: Lake
    stored: list[int]
    offset: list[int]

    def lag(self, second: int) -> int:
        """Return the group's lag at a second."""
        return self.stored[second] - self.offset[second]


def at(second: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=second)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Fifteen minutes of a queue and a group that is slow, stops, is set back, and catches up."""
    generator = random.Random(3)
    growing = GrowingLake(tmp_path_factory.mktemp("lag"))
    stored: list[int] = []
    offset: list[int] = []
    messages: list[NewMessage] = []
    for second in range(SECONDS):
        for _ in range(generator.randrange(3)):
            messages.append(
                new_message(len(messages), topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + second * 1000)
            )
        stored.append(len(messages))
        before = offset[-1] if offset else 0
        if second == 500:
            before = 100  # set back
        moved = 0 if 200 <= second < 300 else generator.randrange(4 if second > 300 else 2)
        offset.append(min(before + moved, len(messages)))
    growing.write(messages)
    commit = growing.archive()
    for second in range(0, SECONDS, STEP):
        taken = {OffsetKind.GROUP: at(second)}
        progress = StoreSnapshot(
            "broker-a", SnapshotSource.FILE, taken, {BILLING: offset[second], IDLE: 0}, log_end=1, log_start=0
        )
        append_snapshot(growing.lake, progress)
    assert commit.sequence == 1
    return Recording(growing.lake, stored, offset)


def lag_at(recording: Recording, second: float, group: str = "billing") -> LagRow:
    given = Overrides({GroupTopic(group, "orders"): ALL})
    (row,) = lag_of_lake(recording.lake, at(second), Selection(groups=[group]), overrides=given).rows
    return row


def test_lag_is_exact_at_snapshots(recording: Recording) -> None:
    for second in range(0, SECONDS, STEP * 5):
        row = lag_at(recording, second)
        assert row.messages.is_exact
        assert row.messages.low == recording.lag(second)
        assert row.offset.low == row.offset.high == recording.offset[second]
        assert (row.end or 0) == recording.stored[second]


@pytest.mark.parametrize(
    ("others", "stride"),
    [(6, 3), pytest.param(30, 1, marks=pytest.mark.long("some seconds in each part of the recording each time"))],
)
def test_lag_between_snapshots_is_within_its_bounds(recording: Recording, others: int, stride: int) -> None:
    generator = random.Random(7)
    after_set_back = range(500, 510, stride)
    for second in sorted({*generator.sample(range(SECONDS - STEP), others), *after_set_back}):
        row = lag_at(recording, second)
        assert row.messages.high is not None
        assert row.messages.low <= recording.lag(second) <= row.messages.high, second


def test_the_lag_is_exact_if_a_group_does_not_move_between_snapshots(recording: Recording) -> None:
    row = lag_at(recording, 615, "idle")
    assert row.messages.is_exact
    assert row.messages.low == recording.stored[615]


def test_after_the_last_snapshot_the_lag_may_be_zero(recording: Recording) -> None:
    row = lag_at(recording, SECONDS + 60)
    assert (row.messages.low, row.messages.high) == (0, None)
    assert "later changes are not known" in row.notes[-1]


def test_before_the_first_snapshot_the_lag_is_unknown(recording: Recording) -> None:
    answer = lag_of_lake(recording.lake, at(-1))
    assert not answer.rows
    (sentence,) = answer.missing
    assert "has no snapshot of its groups at or before 2023-11-14T23:59:59Z" in sentence


def test_the_verdict_matches_the_groups_behaviour(recording: Recording) -> None:
    told = {second: str(lag_at(recording, second).judged.verdict) for second in (180, 510)}
    assert told == {180: "slow", 510: "rewound"}


def test_the_verdict_compares_with_a_snapshot_that_is_older_by_the_watched_time(recording: Recording) -> None:
    table = open_snapshots(recording.lake, OFFSETS)
    assert table is not None
    for watch, second in ((WATCH, 300), (datetime.timedelta(minutes=30), 0)):
        moment = offsets_at(table, "broker-a", at(600), watch)[OffsetKind.GROUP]
        assert moment.compared_at == at(second)
        assert moment.compared == {BILLING: recording.offset[second], IDLE: 0}


@pytest.fixture
def empty(tmp_path: Path) -> GrowingLake:
    """A lake without snapshots."""
    growing = GrowingLake(tmp_path)
    growing.write([new_message(0, topic="orders")])
    growing.archive()
    return growing


def test_a_lake_without_snapshots_is_reported(empty: GrowingLake) -> None:
    answer = lag_of_lake(empty.lake, None)
    assert not answer.rows
    assert answer.missing == ["broker-a: the lake has no snapshot of its groups, so their lag is not known"]
