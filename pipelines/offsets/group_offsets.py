"""Data on a group's offset in one queue."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.verdicts import FigureBounds
from commitlake.schemas.remoting.routes import MessageQueue


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """Offset that a group had, or is to have, in a queue.

    Attributes:
        queue: The queue.
        low: Smallest possible offset. This one is set: no message is lost, but some may be consumed twice.
        high: Largest possible offset; None if not known.
        notes: Sentences on the source of the bounds.
        problem: Reason why the offset is not known or cannot be set; empty if there is none.
    """

    queue: Queue
    low: int
    high: int | None
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_exact(self) -> bool:
        """True if the offset is known exactly."""
        return self.low == self.high

    @property
    def message_queue(self) -> MessageQueue:
        """The queue as RocketMQ clients name it: topic, broker and queue id."""
        return MessageQueue(self.queue.topic, self.queue.broker, self.queue.queue_id)


class LiveQueue(NamedTuple):
    """Present first and end offset of a queue at its broker, and the group's offset.

    Attributes:
        first: First offset that still exists.
        end: Offset of the next message.
        current: The group's offset; None if it has none.
    """

    first: int
    end: int
    current: int | None


class ResultingLag(NamedTuple):
    """Number and size of the messages that a group still has to consume from an offset on.

    Attributes:
        messages: Number of messages that the group wants; without upper bound if some are neither archived nor queried.
        bytes: Size of the records of those in the source.
        next_offset: Offset of the first of them; None if the source has none.
        next_time: Store time of that message.
    """

    messages: FigureBounds
    bytes: int
    next_offset: int | None
    next_time: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """An offset to set, with the current state of its queue and the lag that would result.

    Attributes:
        asked: The offset to set.
        live: The queue at the broker; None if no broker was queried, or it has no such queue.
        current: The group's offset now, or in the newest snapshot; None if not known.
        lag: Remaining messages after the offset is set; None if it cannot be set.
    """

    asked: GroupOffset
    live: LiveQueue | None = None
    current: int | None = None
    lag: ResultingLag | None = None
