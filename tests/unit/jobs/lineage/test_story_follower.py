"""Tests of following a story: new steps are printed, and following ends as soon as possible."""

from __future__ import annotations

import datetime
from dataclasses import replace

from commitlake.jobs.lineage.story_follower import INTERVAL, follow_story
from commitlake.pipelines.lineage.message_history import Evidence, Outcome, OutcomeState, Story
from tests.support.stories import consumed, record_step

SENT = record_step(1, 0, "orders", "sent to orders")
DONE = consumed("c", 4, "billing", 1)
WAITING = Story(
    "key k", None, [SENT], [], [Outcome(SENT.id, OutcomeState.NOT_CONSUMED, "not yet", Evidence.OFFSETS, "g")]
)
CONSUMED = replace(
    WAITING, steps=[SENT, DONE], outcomes=[Outcome(DONE.id, OutcomeState.CONSUMED, "consumed", Evidence.TRACE, "g")]
)
EMPTY = Story("key k", None, [], [], [])


class Clock:
    """A clock that advances by the time waited."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wait(self, seconds: float) -> None:
        """Advance the clock."""
        self.seconds += seconds

    def now(self) -> float:
        """Return the time."""
        return self.seconds


def followed(stories: list[Story], minutes: float = 1) -> tuple[bool, list[str], float]:
    clock, lines = Clock(), list[str]()
    left = iter(stories)
    last = stories[-1]
    is_final = follow_story(
        lambda: next(left, last), lines.append, clock.wait, clock.now, datetime.timedelta(minutes=minutes)
    )
    return is_final, lines, clock.seconds


def test_new_steps_and_outcomes_are_printed_once() -> None:
    is_final, lines, seconds = followed([EMPTY, WAITING, WAITING, CONSUMED])
    assert is_final
    assert [line.strip().split(":")[0] for line in lines if "now" in line] == ["now", "now"]
    assert len(lines) == 4
    assert "2026-11-20 14:00:00  sent to orders" in lines[0]
    assert seconds == 3 * INTERVAL.total_seconds()


def test_following_ends_after_its_timeout() -> None:
    is_final, lines, seconds = followed([WAITING], 0.5)
    assert not is_final
    assert len(lines) == 2
    assert seconds == 30
