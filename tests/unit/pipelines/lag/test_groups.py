"""Rows of lag summed up by group."""

from __future__ import annotations

import datetime

from commitlake.jobs.lag.formatting import summary
from commitlake.pipelines.lag.groups import by_group, summed, times_of
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.offsets import OffsetAt
from commitlake.pipelines.lag.verdicts import FigureBounds, Judged, LagVerdict

NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)


def row(group: str, verdict: LagVerdict, high: int | None, topic: str = "orders", kind: str = "group") -> Lag:
    behind = FigureBounds(1, high)
    return Lag(
        "broker-a", kind, group, topic, 0, NOON, OffsetAt(0, 0), 9, behind, behind, behind, None, Judged(verdict)
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
    groups = by_group(rows)
    assert [group.group for group in groups] == ["ill", "slower", "slow", "well"]
    assert (groups[0].verdict, groups[0].worst.topic, groups[0].topics) == (LagVerdict.STALLED, "orders", ["orders"])
    assert (groups[0].messages, groups[0].bytes, groups[0].seconds) == (
        FigureBounds(2, 5),
        FigureBounds(2, 5),
        FigureBounds(1, 3),
    )
    assert groups[3].topics == ["orders"]


def test_the_time_of_the_figures_is_that_of_groups() -> None:
    earlier = row("well", LagVerdict.OK, 500)
    later = row("", LagVerdict.SLOW, 9, kind="timer")._replace(as_of=NOON + datetime.timedelta(minutes=10))
    assert times_of([later, earlier]) == [NOON]
    assert times_of([later]) == [later.as_of]
    assert summary([later, earlier]).endswith(", as of 2026-11-20T12:00:00Z")


def test_a_sum_with_an_unknown_bound_has_none() -> None:
    assert summed([FigureBounds(1, 2), FigureBounds(3, None)]) == FigureBounds(4, None)
    (group,) = by_group([row("a", LagVerdict.OK, 2), row("a", LagVerdict.OK, None)])
    assert group.seconds == FigureBounds(1, None)
    assert summed([]) == FigureBounds(0, 0)
