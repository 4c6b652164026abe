"""Rows of lag summed up by group."""

from __future__ import annotations

import datetime
import json
import os

import pytest

from commitlake.jobs.lag.report import summary_sentence
from commitlake.jobs.snapshot.command import main as snapshot
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.group_summaries import (
    find_stalled_since,
    group_row_times,
    sum_of_bounds,
    summarize_by_group,
)
from commitlake.pipelines.lag.offsets import OffsetAt
from commitlake.pipelines.lag.store_lag import LagAnswer, lag_of_lake
from commitlake.pipelines.lag.verdicts import FigureBounds, LagJudgement, LagVerdict
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
MIDNIGHT = datetime.datetime.fromtimestamp(MIDNIGHT_MS / 1000, datetime.UTC)
HOUR = datetime.timedelta(hours=1)
OFFSETS = {1: 1, 2: 3, 3: 3, 4: 3}
"""By the hour of a snapshot; a message is stored each hour from 0 on."""


def row(group: str, verdict: LagVerdict, high: int | None, topic: str = "orders", kind: str = "group") -> LagRow:
    behind = FigureBounds(1, high)
    return LagRow(
        "broker-a", kind, group, topic, 0, NOON, OffsetAt(0, 0), 9, behind, behind, behind, None, LagJudgement(verdict)
    )


def test_the_group_with_the_worst_verdict_is_first() -> None:
    rows = [
        row("well", LagVerdict.OK, 500),
        row("ill", LagVerdict.OK, 3, "payments"),
        row("ill", LagVerdict.STALLED, 2),
        row("slow", LagVerdict.SLOW, 400),
        row("slower", LagVerdict.SLOW, 900),
        row("", LagVerdict.LOST, 9, kind="delay"),
    ]
    groups = summarize_by_group(rows)
    assert [group.group for group in groups] == ["ill", "slower", "slow", "well"]
    assert (groups[0].verdict, groups[0].worst_row.topic, groups[0].troubled_topics) == (
        LagVerdict.STALLED,
        "orders",
        ["orders"],
    )
    assert (groups[0].messages_behind, groups[0].bytes_behind, groups[0].longest_wait_seconds) == (
        FigureBounds(2, 5),
        FigureBounds(2, 5),
        FigureBounds(1, 3),
    )
    assert groups[3].troubled_topics == ["orders"]


def test_the_time_of_the_figures_is_that_of_groups() -> None:
    earlier = row("well", LagVerdict.OK, 500)
    later = row("", LagVerdict.SLOW, 9, kind="timer")._replace(as_of=NOON + datetime.timedelta(minutes=10))
    assert group_row_times([later, earlier]) == [NOON]
    assert group_row_times([later]) == [later.as_of]
    assert summary_sentence(LagAnswer([later, earlier], ())).endswith(" As of 2026-11-20T12:00:00Z.")


def test_a_sum_with_an_unknown_bound_has_none() -> None:
    assert sum_of_bounds([FigureBounds(1, 2), FigureBounds(3, None)]) == FigureBounds(4, None)
    (group,) = summarize_by_group([row("a", LagVerdict.OK, 2), row("a", LagVerdict.OK, None)])
    assert group.longest_wait_seconds == FigureBounds(1, None)
    assert sum_of_bounds([]) == FigureBounds(0, 0)


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    growing = GrowingLake(tmp_path_factory.mktemp("history"))
    growing.write(
        new_message(hour, topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + hour * 3_600_000)
        for hour in range(5)
    )
    growing.archive()
    path = growing.store / "config" / "consumerOffset.json"
    path.parent.mkdir()
    for hour, offset in OFFSETS.items():
        path.write_text(json.dumps({"offsetTable": {"orders@it's": {0: offset}}}))
        os.utime(path, (MIDNIGHT_MS // 1000 + hour * 3600,) * 2)
        assert snapshot(["--lake", growing.lake.root, "--store", str(growing.store), "--quiet"]) == 0
    return growing


def test_a_group_is_standing_since_its_offset_or_the_first_waiting_message(growing: GrowingLake) -> None:
    found = []
    for hour in OFFSETS:
        (row,) = lag_of_lake(growing.lake, MIDNIGHT + hour * HOUR).rows
        found.append(find_stalled_since(growing.lake, row))
    # At 1 the message of 1 waits; at 2 none does; from 3 on it is the message of 3.
    assert found == [MIDNIGHT + HOUR, None, MIDNIGHT + 3 * HOUR, MIDNIGHT + 3 * HOUR]
