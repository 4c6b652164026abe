"""First and end offsets of queues at a time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.pipelines.lag.counting import Queue


@dataclass(frozen=True, slots=True)
class Times:
    """Limits in time and in the log for measuring queues.

    Attributes:
        until: Messages that were stored later do not count; None for no limit.
        compared_at: An earlier time. The difference of the ends shows how fast messages come in.
        log_start: Physical offset at which the broker's log began.
    """

    until: datetime.datetime | None = None
    compared_at: datetime.datetime | None = None
    log_start: int | None = None

    @property
    def seconds(self) -> float:
        """Seconds between the two times; 0 if one of them is not known."""
        if self.until is None or self.compared_at is None:
            return 0.0
        return (self.until - self.compared_at).total_seconds()


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """First and end offset of a queue.

    Attributes:
        first: Offset of the first message that the broker still has, or `end` if it has none; None if not known.
        end: Offset of the next message.
        compared_end: End at the earlier time; None if not known.
        floor: Physical offset of the first record after the topic was created again; None if it never was.
    """

    first: int | None
    end: int
    compared_end: int | None = None
    floor: int | None = None

    def produce_tps(self, seconds: float) -> float | None:
        """Return the messages per second that came in since the earlier time, so many seconds ago; None if not known.

        If the end at the earlier time is not known, the queue had no message before `first`.
        """
        return (self.end - (self.compared_end or self.first or 0)) / seconds if seconds > 0 else None


class SpanFinder:
    """Finds the first and end offsets of queues from messages in the order of the log.

    Within a queue, offsets rise. Where they restart, the topic was deleted and created again: the log still has the
    older messages, but the broker no longer knows them, and no group can consume them.
    """

    def __init__(self) -> None:
        self._found: dict[Queue, QueueSpan] = {}

    def add(self, queue: Queue, offsets: Array, physical: Array) -> None:
        """Add messages of a queue.

        Args:
            queue: The queue.
            offsets: Their offsets in it.
            physical: Their physical offsets, in ascending order.
        """
        if not len(offsets):
            return
        known = self._found.get(queue)
        before = np.concatenate([[known.end - 1 if known else -1], offsets[:-1]])
        restarts = np.flatnonzero(offsets <= before)
        if len(restarts):
            offsets, physical = offsets[restarts[-1] :], physical[restarts[-1] :]
            known = QueueSpan(int(offsets[0]), 0, floor=int(physical[0]))
        first = int(offsets[0]) if known is None else known.first
        self._found[queue] = QueueSpan(first, int(offsets[-1]) + 1, floor=known.floor if known else None)

    @property
    def found(self) -> Mapping[Queue, QueueSpan]:
        """Queues that have a message."""
        return self._found

    @property
    def floors(self) -> Mapping[Queue, int]:
        """Queues whose topic was created again, each with the physical offset of its first record since."""
        return {queue: span.floor for queue, span in self._found.items() if span.floor is not None}
