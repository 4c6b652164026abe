"""Verdicts on groups, from their movement."""

from __future__ import annotations

import datetime

import pytest

from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.lag.verdicts import FigureBounds, LagVerdict, Movement, lag_verdict

AT = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)
WINDOW = 600.0


@pytest.mark.parametrize(
    ("span", "movement", "messages", "waited", "expected"),
    [
        (QueueSpan(0, 100, 50), Movement(100, 50, (), WINDOW), 0, 0, LagVerdict.OK),
        # It catches up: 60 consumed, 50 came.
        (QueueSpan(0, 100, 50), Movement(90, 30, (60,), WINDOW), 10, 60, LagVerdict.OK),
        # Its lag grows: 30 consumed, 50 new, and it had a lag before.
        (QueueSpan(0, 100, 50), Movement(60, 30, (45,), WINDOW), 40, 400, LagVerdict.SLOW),
        # It had no lag, and messages have just arrived.
        (QueueSpan(0, 100, 50), Movement(50, 50, (), WINDOW), 50, 5, LagVerdict.OK),
        (QueueSpan(0, 100, 80), Movement(50, 50, (), WINDOW), 50, 700, LagVerdict.STALLED),
        (QueueSpan(0, 100, 80), Movement(50, 50, (), WINDOW, has_members=True), 50, 700, LagVerdict.STALLED),
        (QueueSpan(0, 100, 80), Movement(50, 50, (), WINDOW, has_members=False), 50, 700, LagVerdict.STOPPED),
        # It moved until its last client left, a moment ago.
        (QueueSpan(0, 100, 80), Movement(60, 50, (), WINDOW, has_members=False), 40, 5, LagVerdict.STOPPED),
        (QueueSpan(0, 100, None), Movement(50, has_members=False), 50, 5, LagVerdict.STOPPED),
        (QueueSpan(0, 100, 80), Movement(40, 50, (), WINDOW), 60, 700, LagVerdict.REWOUND),
        # It was set back in between, and has come further since.
        (QueueSpan(0, 100, 80), Movement(70, 50, (60, 10), WINDOW), 30, 5, LagVerdict.REWOUND),
        (QueueSpan(60, 100, 80), Movement(50, 50, (), WINDOW), 40, 700, LagVerdict.LOST),
        # -1 means that a group has not consumed yet.
        (QueueSpan(0, 100, 80), Movement(-1, -1, (), WINDOW), 100, 700, LagVerdict.STALLED),
        (QueueSpan(1, 100, 80), Movement(-1, -1, (), WINDOW), 99, 700, LagVerdict.LOST),
        (QueueSpan(0, 100, 80), Movement(101, 50, (), WINDOW), 0, 0, LagVerdict.AHEAD),
        (QueueSpan(0, 100, None), Movement(50), 50, 700, LagVerdict.UNKNOWN),
        # It has its first offset since the earlier snapshot, and has moved since, or not.
        (QueueSpan(0, 100, 80), Movement(50, None, (40,), WINDOW), 50, 5, LagVerdict.OK),
        (QueueSpan(0, 100, 80), Movement(50, None, (50,), WINDOW), 50, 5, LagVerdict.UNKNOWN),
        (None, Movement(50, 50, (), WINDOW), 0, 0, LagVerdict.OK),
    ],
)
def test_each_movement_has_its_verdict(
    span: QueueSpan | None, movement: Movement, messages: int, waited: float, expected: LagVerdict
) -> None:
    next_time = AT - datetime.timedelta(seconds=waited) if messages else None
    missing = 0 if span is None else max(0, (span.first or 0) - max(0, movement.offset))
    judged = lag_verdict(span, movement, messages, next_time, AT, FigureBounds(missing, missing))
    assert judged.verdict is expected
    if movement.has_members is False:
        assert (judged.consume_tps, judged.drain_seconds(messages)) == (0.0, None)


def test_a_group_is_not_rewound_if_its_topic_was_created_again_since_the_earlier_snapshot() -> None:
    movement = Movement(1, 50, (60,), WINDOW)
    new = lag_verdict(QueueSpan(0, 3, floor=900), movement, 2, AT, AT)
    assert (new.verdict, "its topic was created again" in new.reason) == (LagVerdict.UNKNOWN, True)
    assert lag_verdict(QueueSpan(0, 3, compared_end=2, floor=900), movement, 2, AT, AT).verdict is LagVerdict.REWOUND


def test_an_offset_beyond_the_archived_messages_is_ok() -> None:
    judged = lag_verdict(QueueSpan(0, 100), Movement(101, 50, (), WINDOW), 0, None, AT, is_complete=False)
    assert judged.verdict is LagVerdict.OK


def test_the_drain_time_is_known_if_a_group_is_faster_than_its_producers() -> None:
    catching_up = lag_verdict(QueueSpan(0, 100, 40), Movement(90, 0, (), 60.0), 10, AT, AT)
    assert (catching_up.consume_tps, catching_up.produce_tps) == (1.5, 1.0)
    assert catching_up.drain_seconds(10) == 20.0
    assert catching_up.drain_seconds(0) == 0.0
    falling_behind = lag_verdict(QueueSpan(0, 100, 40), Movement(50, 0, (), 60.0), 50, AT, AT)
    assert falling_behind.drain_seconds(50) is None
