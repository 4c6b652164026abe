"""What is known of a group's offset in one queue."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import NamedTuple

from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.measure import Bounds
from commitlake.schemas.remoting.routes import MessageQueue


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """The offset that a group had, or needs, in a queue.

    Attributes:
        queue: The queue.
        low: The smallest offset that it can be. This one is set: no message is lost, some may be consumed twice.
        high: The largest; None where that is not known.
        notes: Sentences on how these are known.
        problem: Why the offset cannot be told or set; empty where it can.
    """

    queue: Queue
    low: int
    high: int | None
    notes: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the offset is known exactly."""
        return self.low == self.high

    @property
    def message_queue(self) -> MessageQueue:
        """The queue as brokers name it."""
        return MessageQueue(self.queue.topic, self.queue.broker, self.queue.queue_id)


class LiveQueue(NamedTuple):
    """A queue as its broker describes it now.

    Attributes:
        first: The first offset that is still there.
        end: The offset of the next message.
        current: The group's offset; None where it has none.
    """

    first: int
    end: int
    current: int | None


class ResultingLag(NamedTuple):
    """What is left to consume from an offset.

    Attributes:
        messages: How many messages the group wants; unbounded where some are neither archived nor asked for.
        bytes: Of the records of those that are in the source.
        next_offset: The first of them; None where the source has none.
        next_time: When that was stored.
    """

    messages: Bounds
    bytes: int
    next_offset: int | None
    next_time: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """An offset with all that is known of its queue.

    Attributes:
        asked: The offset.
        live: The queue at the broker; None where no broker was asked, or it has no such queue.
        current: The group's offset now, or as of the newest snapshot; None where not known.
        lag: What is left to consume once the offset is set; None where it cannot be set.
    """

    asked: GroupOffset
    live: LiveQueue | None = None
    current: int | None = None
    lag: ResultingLag | None = None
