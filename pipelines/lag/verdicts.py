"""How a group does in a queue, told from how it moved, without a threshold; after LinkedIn's Burrow.

The verdicts:

    ok       nothing is behind, or the group moves at least as fast as messages come in
    slow     the group moves, messages come in faster, and the next one has waited for a while
    stalled  the group does not move although messages wait, and it has clients, or it is not known whether it has
    stopped  messages wait, and the group has no client
    rewound  the group was set back
    lost     the broker has deleted messages before the group came to them
    ahead    the group's offset is larger than the queue's end: the topic was made anew, or the log was cut
    unknown  messages wait, and there is one snapshot only, which does not tell whether the group moves
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from commitlake.pipelines.lag.queues import QueueSpan

WAITING_PARTS = 10
"""A group is slow where the next message has waited for more than this part of the time in which it was watched: what
has only just come in, all at once, does not make it slow."""


class Verdict(StrEnum):
    """See the module; in order of gravity."""

    OK = "ok"
    UNKNOWN = "unknown"
    SLOW = "slow"
    AHEAD = "ahead"
    REWOUND = "rewound"
    STALLED = "stalled"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def gravity(self) -> int:
        """The larger, the worse."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Movement:
    """How a group moved in a queue.

    Attributes:
        offset: Where it is.
        compared: Where it was; None where that is not known.
        moves: Where it was in between, oldest first.
        seconds: From then to now.
        has_members: Whether it has clients; None where that is not known.
    """

    offset: int
    compared: int | None = None
    moves: Sequence[int] = ()
    seconds: float = 0.0
    has_members: bool | None = None

    @property
    def is_rewound(self) -> bool:
        """Whether it was set back."""
        places = [*([] if self.compared is None else [self.compared]), *self.moves, self.offset]
        return any(after < before for before, after in pairwise(places))

    @property
    def consume_tps(self) -> float | None:
        """Messages a second that it has gone through; None where that is not known."""
        if self.compared is None or self.seconds <= 0 or self.is_rewound:
            return None
        return (self.offset - self.compared) / self.seconds


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with the rates that it is made from.

    Attributes:
        verdict: The verdict.
        reason: Why, where it is not plain.
        consume_tps: Messages a second that the group goes through; None where not known.
        produce_tps: Messages a second that come in; None where not known.
    """

    verdict: Verdict
    reason: str = ""
    consume_tps: float | None = None
    produce_tps: float | None = None

    def drain_seconds(self, messages: int) -> float | None:
        """Return how long the group needs for what is behind; None where it does not get there."""
        if not messages:
            return 0.0
        if self.consume_tps is None or self.produce_tps is None or self.consume_tps <= self.produce_tps:
            return None
        return messages / (self.consume_tps - self.produce_tps)


def judge(
    span: QueueSpan | None,
    movement: Movement,
    messages: int,
    next_time: datetime.datetime | None,
    at: datetime.datetime,
    *,
    is_complete: bool = True,
) -> Judged:
    """Return the verdict on a group in a queue.

    Args:
        span: Of the queue; None where no message of it is known.
        movement: Of the group.
        messages: That are behind.
        next_time: When the next message was stored; None where there is none.
        at: The time.
        is_complete: Whether all messages of the time are known: else an offset beyond the end says nothing.
    """
    if span is not None and not is_complete:
        span = replace(span, end=max(span.end, movement.offset))
    produce_tps = None
    if span is not None and movement.seconds > 0:
        produce_tps = (span.end - (span.compared_end or span.first or 0)) / movement.seconds
    consume_tps = movement.consume_tps
    verdict, reason = _verdict(span, movement, messages, next_time, at)
    if verdict is Verdict.OK and messages and consume_tps is not None and produce_tps is not None:
        is_growing = produce_tps > consume_tps
        if is_growing and _waited(next_time, at) * WAITING_PARTS > movement.seconds:
            verdict, reason = Verdict.SLOW, "messages come in faster than the group goes through them"
    return Judged(verdict, reason, consume_tps, produce_tps)


def _verdict(
    span: QueueSpan | None,
    movement: Movement,
    messages: int,
    next_time: datetime.datetime | None,
    at: datetime.datetime,
) -> tuple[Verdict, str]:
    if (misplaced := _misplaced(span, movement)) is not None:
        return misplaced
    if not messages:
        return Verdict.OK, ""
    if movement.has_members is False:
        return Verdict.STOPPED, "messages wait, and the group has no client"
    if movement.compared is None or movement.seconds <= 0:
        return Verdict.UNKNOWN, "one snapshot only: whether the group moves is not known"
    if movement.offset != movement.compared or _waited(next_time, at) < movement.seconds:
        return Verdict.OK, ""
    return Verdict.STALLED, "the group does not move" + ("" if movement.has_members else "; its clients are not known")


def _waited(next_time: datetime.datetime | None, at: datetime.datetime) -> float:
    """Return for how many seconds the next message has been waiting."""
    return 0.0 if next_time is None else (at - next_time).total_seconds()


def _misplaced(span: QueueSpan | None, movement: Movement) -> tuple[Verdict, str] | None:
    """Return the verdict on an offset outside of its queue, or one that was set back; None for others."""
    if span is None:
        gone = "no message of this queue is known: the topic was deleted, or all of its messages were"
        return Verdict.OK, gone if movement.offset else ""
    if movement.offset > span.end:
        beyond = f"the offset is {movement.offset - span.end} beyond the queue's end, {span.end}"
        return Verdict.AHEAD, f"{beyond}: the topic was made anew, or its log was cut"
    if span.first is not None and movement.offset < span.first:
        return Verdict.LOST, f"{span.first - movement.offset} messages before {span.first} were deleted unconsumed"
    if movement.is_rewound:
        return Verdict.REWOUND, "the group's offset was set back"
    return None
