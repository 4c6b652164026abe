"""State of a group in a queue, judged by its movement, without a threshold. Modelled on LinkedIn's Burrow.

The verdicts:

    ok       no messages wait, or the group moves at least as fast as messages come in
    slow     the group moves, but messages come in faster, and the next one has waited for a while
    stalled  the group does not move although messages wait; it has clients, or it is not known whether it has
    stopped  messages wait, and the group has no client
    rewound  the group's offset was set back
    lost     the broker deleted messages before the group consumed them
    ahead    the group's offset is beyond the queue's end: the topic was created again, or the log was cut
    unknown  messages wait, and only one snapshot has an offset of the group, which does not show whether it moves; or
             the topic was deleted
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.schemas.formatted_counts import format_count

WAITING_PARTS = 5
"""A group is slow only if the next message has waited longer than the watched time divided by this number.

Otherwise a sudden burst of messages would make a group slow.
"""


class LagVerdict(StrEnum):
    """State of a group in a queue, such as ok, slow or stopped, in ascending order of severity."""

    OK = "ok"
    UNKNOWN = "unknown"
    SLOW = "slow"
    AHEAD = "ahead"
    REWOUND = "rewound"
    STALLED = "stalled"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def severity_rank(self) -> int:
        """Position of the verdict in the order of severity; a larger number is worse."""
        return _GRAVITIES[self]


_GRAVITIES = {verdict: number for number, verdict in enumerate(LagVerdict)}
NOT_MOVING = frozenset({LagVerdict.STALLED, LagVerdict.STOPPED})
"""Verdicts on groups that have messages, and do not consume them."""


class FigureBounds(NamedTuple):
    """Lower and upper bound of a number that may not be known exactly.

    Attributes:
        low: Smallest possible value.
        high: Largest possible value; None if it is not known.
    """

    low: float
    high: float | None

    @property
    def is_exact(self) -> bool:
        """True if both bounds are the same, so that the value is known."""
        return self.low == self.high

    @property
    def largest(self) -> float:
        """The upper bound, or the lower one if there is no upper one."""
        return self.low if self.high is None else self.high


NOTHING = FigureBounds(0, 0)


class Movement(NamedTuple):
    """Offsets of a group in a queue between two times, which show how it moved.

    Attributes:
        offset: Its offset now.
        compared: Its offset at the start; None if not known.
        moves: Its offsets in between, the oldest first.
        seconds: Time from start to now.
        has_members: True if it has clients; None if not known.
    """

    offset: int
    compared: int | None = None
    moves: Sequence[int] = ()
    seconds: float = 0.0
    has_members: bool | None = None

    @property
    def is_rewound(self) -> bool:
        """True if the group's offset was set back."""
        if not self.moves:
            return self.compared is not None and self.offset < self.compared
        places = [*([] if self.compared is None else [self.compared]), *self.moves, self.offset]
        return any(after < before for before, after in pairwise(places))

    @property
    def has_moved(self) -> bool | None:
        """True if the offset changed in the watched time; None if not known."""
        if self.seconds > 0 and self.compared is not None:
            return self.offset != self.compared
        return True if self.moves and self.moves[0] != self.offset else None

    @property
    def consume_tps(self) -> float | None:
        """Messages per second that the group consumed; None if not known."""
        if self.compared is None or self.seconds <= 0 or self.is_rewound:
            return None
        return (self.offset - self.compared) / self.seconds


class LagJudgement(NamedTuple):
    """Verdict on a group in a queue, with the rates that it is based on.

    Attributes:
        verdict: The verdict.
        reason: The reason, if the verdict alone does not say it.
        consume_tps: Messages per second that the group consumes; None if not known.
        produce_tps: Messages per second that come in; None if not known.
    """

    verdict: LagVerdict
    reason: str = ""
    consume_tps: float | None = None
    produce_tps: float | None = None

    def drain_seconds(self, messages: int) -> float | None:
        """Return in how many seconds the group catches up at its present rate; None if it will not."""
        if not messages:
            return 0.0
        if self.consume_tps is None or self.produce_tps is None or self.consume_tps <= self.produce_tps:
            return None
        return messages / (self.consume_tps - self.produce_tps)


def lag_verdict(
    span: QueueSpan | None,
    movement: Movement,
    messages: int,
    next_message_time: datetime.datetime | None,
    as_of: datetime.datetime,
    lost_messages: FigureBounds = NOTHING,
    *,
    is_complete: bool = True,
) -> LagJudgement:
    """Return the verdict on a group in a queue: whether it keeps up, is slow, has stopped or has lost messages.

    Args:
        span: Offsets of the queue; None if no message of it is known.
        movement: Movement of the group.
        messages: Number of messages that wait.
        next_message_time: Store time of the next message; None if there is none.
        as_of: The time.
        lost_messages: Number of messages that the broker deleted before the group consumed them.
        is_complete: True if all messages up to the time are known. If not, an offset beyond the end is no sign of
            trouble.
    """
    is_new = span is not None and span.floor is not None and span.compared_end is None
    if is_new and movement.is_rewound:  # the earlier offsets are those of the deleted topic
        movement = movement._replace(compared=None, moves=())
    if span is not None and not is_complete:
        span = replace(span, end=max(span.end, movement.offset))
    produce_tps = None if span is None else span.produce_tps(movement.seconds)
    # A group without a client consumes nothing, whatever it did before its last client left.
    is_stopped = movement.has_members is False and messages > 0
    consume_tps = 0.0 if is_stopped else movement.consume_tps
    verdict, reason = _judge_offset(span, movement, messages, next_message_time, as_of, lost_messages)
    if verdict is LagVerdict.UNKNOWN and is_new:
        reason = "its topic was created again since the earlier snapshot, so it is not known whether the group moves"
    if verdict is LagVerdict.OK and messages and consume_tps is not None and produce_tps is not None:
        is_growing = produce_tps > consume_tps
        if is_growing and _next_message_wait_seconds(next_message_time, as_of) * WAITING_PARTS > movement.seconds:
            verdict, reason = LagVerdict.SLOW, "messages come in faster than the group consumes them"
    return LagJudgement(verdict, reason, consume_tps, produce_tps)


def _judge_offset(
    span: QueueSpan | None,
    movement: Movement,
    messages: int,
    next_message_time: datetime.datetime | None,
    as_of: datetime.datetime,
    lost_messages: FigureBounds,
) -> tuple[LagVerdict, str]:
    if (misplaced := _judge_misplaced_offset(span, movement, lost_messages)) is not None:
        return misplaced
    if not messages:
        return LagVerdict.OK, ""
    if movement.has_members is False:
        return LagVerdict.STOPPED, "messages wait, and the group has no client"
    if movement.has_moved is None:
        return (
            LagVerdict.UNKNOWN,
            "there is only one snapshot with an offset of the group, so it is not known whether it moves",
        )
    if movement.has_moved or _next_message_wait_seconds(next_message_time, as_of) < movement.seconds:
        return LagVerdict.OK, ""
    return LagVerdict.STALLED, "the group does not move" + (
        "" if movement.has_members else "; its clients are not known"
    )


def _next_message_wait_seconds(next_message_time: datetime.datetime | None, as_of: datetime.datetime) -> float:
    """Return the seconds that the next message has been waiting."""
    return 0.0 if next_message_time is None else (as_of - next_message_time).total_seconds()


def _judge_misplaced_offset(
    span: QueueSpan | None, movement: Movement, lost_messages: FigureBounds
) -> tuple[LagVerdict, str] | None:
    """Return the verdict on an offset that is outside of its queue or was set back; None for any other offset."""
    if span is None:
        gone = "no message of this queue is known: the topic was deleted, or all of its messages were"
        return LagVerdict.OK, gone if movement.offset else ""
    if movement.offset > span.end:
        beyond = f"the offset is {movement.offset - span.end} beyond the queue's end, {span.end}"
        return LagVerdict.AHEAD, f"{beyond}: the topic was created again, or its log was cut"
    if lost_messages.largest:
        most = "" if lost_messages.is_exact else "up to "
        return (
            LagVerdict.LOST,
            f"{most}{format_count(int(lost_messages.largest), 'message')} before {span.first} deleted unconsumed",
        )
    if movement.is_rewound:
        return LagVerdict.REWOUND, "the group's offset was set back"
    return None
