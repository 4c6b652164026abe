"""Tests of the text about lag."""

from __future__ import annotations

import datetime

import pytest

from commitlake.jobs.notebooks import lag_words as words
from commitlake.pipelines.lag.groups import GroupSummary
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.offsets import OffsetAt
from commitlake.pipelines.lag.verdicts import FigureBounds, Judged, LagVerdict

AT = datetime.datetime(2026, 11, 20, 15, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


def group(judged: Judged, messages: FigureBounds) -> GroupSummary:
    row = Lag(
        broker="a",
        kind="group",
        group="G",
        topic="orders",
        queue_id=3,
        as_of=AT,
        offset=OffsetAt(0, 0),
        end=None,
        messages=messages,
        bytes=FigureBounds(0, 0),
        seconds=FigureBounds(60, 60),
        next_time=None,
        judged=judged,
    )
    return GroupSummary("G", [row])


@pytest.mark.parametrize(
    ("verdict", "since", "state"),
    [
        (LagVerdict.STALLED, AT - HOUR, "stalled since 14:00 UTC"),
        (LagVerdict.STOPPED, AT - 24 * HOUR, "stopped since 2026-11-19 15:00 UTC"),
        (LagVerdict.STALLED, None, "stalled"),
        (LagVerdict.SLOW, AT - HOUR, "slow"),
        (LagVerdict.UNKNOWN, None, "and whether it is moving is not known"),
    ],
)
def test_the_worst_group_is_named_with_its_state(
    verdict: LagVerdict, since: datetime.datetime | None, state: str
) -> None:
    sentences = list(
        words.answer([group(Judged(verdict, "it sleeps"), FigureBounds(1203, 1203))], since, ["b: no snapshot"])
    )
    assert sentences == [
        f"The worst group is G: 1,203 messages behind, {state}.",
        "Why: it sleeps (queue 3 of orders).",
        "How long it needs to catch up is not known.",
        f"1 group: 1 {verdict}; as of 2026-11-20 15:00:00 UTC.",
        "Not known: b: no snapshot.",
    ]


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ((3.0, 1.0), "At its present rate it has caught up in 10 min."),
        ((1.0, 3.0), "At its present rate it does not catch up."),
        ((None, 3.0), "How long it needs to catch up is not known."),
    ],
)
def test_time_to_catch_up_follows_from_the_rates(rates: tuple[float | None, float], expected: str) -> None:
    judged = Judged(LagVerdict.SLOW, "", *rates)
    assert list(words.answer([group(judged, FigureBounds(1200, 1200))], None))[1] == expected


def test_bounds_are_described() -> None:
    assert words.messages_text(FigureBounds(1, 1)) == "1 message"
    assert words.messages_text(FigureBounds(1, 5)) == "1 to 5 messages"
    assert words.messages_text(FigureBounds(1, None)) == "1 or more messages"


def test_groups_that_keep_up_and_no_groups_are_described() -> None:
    assert (
        next(words.answer([group(Judged(LagVerdict.OK), FigureBounds(0, 0))], None))
        == "1 group keeps up; no message is waiting."
    )
    assert list(words.answer([], None, ["b: no snapshot"])) == [
        "No consumer offsets are known.",
        "Not known: b: no snapshot.",
    ]
