"""First and end offsets of queues at a time, and the protocols by which messages of queues are counted and read."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.lag.backlog_counting import Queue

BODY = "body"
"""A column that is read only if a count needs it: bodies are outside the tables. Null if a body cannot be read."""


@dataclass(frozen=True, slots=True)
class CountLimits:
    """Limits of the messages to count: store times, and the start of the broker's log.

    Attributes:
        until: Messages that were stored later do not count; None for no limit.
        compared_at: An earlier time. The difference of the ends shows how fast messages come in.
        log_start: Physical offset at which the broker's log began.
    """

    until: datetime.datetime | None = None
    compared_at: datetime.datetime | None = None
    log_start: int | None = None

    @property
    def seconds_between(self) -> float:
        """Seconds between the two times; 0 if one of them is not known."""
        if self.until is None or self.compared_at is None:
            return 0.0
        return (self.until - self.compared_at).total_seconds()


@dataclass(frozen=True, slots=True)
class QueueSpan:
    """First offset that the broker still has in a queue, and the queue's end offset.

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
        """Return the messages per second that arrived in the last `seconds`; None if that is not known.

        If the end at the earlier time is not known, the queue had no message before `first`.
        """
        return (self.end - (self.compared_end or self.first or 0)) / seconds if seconds > 0 else None


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Messages of a queue since its offsets last restarted; all messages if they never did.

    Attributes:
        first: Offset in the queue of the first of them.
        begin: Physical offset of the first of them.
        last: Physical offset of the last of them.
        before: Physical offset of the last message before the restart; None if the offsets never restarted.
    """

    first: int
    begin: int
    last: int
    before: int | None = None


def find_topic_restarts(
    runs: Mapping[Queue, QueueRun], is_queue_deleted: Callable[[Queue], bool] = lambda _: False
) -> dict[Queue, int]:
    """Return, by queue, the physical offset at which its topic was created again; earlier records do not count.

    A topic is deleted as a whole. If the offsets of one of its queues restart, the messages of another queue also
    belong to the deleted topic if they end before the first message of the new topic. A queue whose messages all lie
    between the last message of the deleted topic and the first one of the new topic can belong to either: it counts as
    deleted if its offsets do not begin at 0, or if the broker no longer has the queue.

    Args:
        runs: All queues with a message; topics without a restart may be left out.
        is_queue_deleted: Function that returns whether the broker is known not to have a queue.
    """
    topics: dict[tuple[str, str], list[Queue]] = defaultdict(list)
    for queue in runs:
        topics[queue.broker, queue.topic].append(queue)
    floors = {}
    for queues in topics.values():
        again = {queue: before for queue in queues if (before := runs[queue].before) is not None}
        if not again:
            continue
        old_end = max(again.values())
        # A topic can have been created again several times: some queues may have no message since the last time.
        new_begin = min(run.begin for run in map(runs.__getitem__, again) if run.begin > old_end)
        for queue in queues:
            run = runs[queue]
            if queue in again and run.begin > old_end:
                floors[queue] = run.begin
            elif run.last < new_begin and (run.begin <= old_end or run.first > 0 or is_queue_deleted(queue)):
                floors[queue] = new_begin
            elif queue in again:
                floors[queue] = run.begin
    return floors


class SpanFinder:
    """Finds the first and end offset of each queue from messages that are added in the order of the log.

    Within a queue, offsets rise. Where they restart, the topic was deleted and created again: the log still has the
    older messages, but the broker no longer knows them, and no group can consume them. See `find_topic_restarts` for
    queues that have no message since then.

    Args:
        is_gone: Function that returns whether the broker is known not to have a queue.
    """

    def __init__(self, is_gone: Callable[[Queue], bool] = lambda _: False) -> None:
        self._is_gone = is_gone
        self._runs: dict[Queue, QueueRun] = {}
        self._ends: dict[Queue, int] = {}
        self._floors: dict[Queue, int] | None = None

    def add_messages(self, queue: Queue, offsets: Array, physical_offsets: Array) -> None:
        """Add messages of one queue, in the order of the log.

        Args:
            offsets: Their offsets in it.
            physical_offsets: Their physical offsets, in ascending order.
        """
        if not len(offsets):
            return
        self._floors = None
        known = self._runs.get(queue)
        # The message before each, for the first one that of the batch before.
        earlier = np.concatenate([[self._ends.get(queue, 0) - 1], offsets[:-1]])
        restarts = np.flatnonzero(offsets <= earlier)
        last = int(physical_offsets[-1])
        if len(restarts):
            # Only the last restart counts: messages before it are of deleted topics.
            place = int(restarts[-1])
            before = int(physical_offsets[place - 1]) if place else known.last if known else None
            self._runs[queue] = QueueRun(int(offsets[place]), int(physical_offsets[place]), last, before)
        elif known is None:
            self._runs[queue] = QueueRun(int(offsets[0]), int(physical_offsets[0]), last)
        else:
            self._runs[queue] = QueueRun(known.first, known.begin, last, known.before)
        self._ends[queue] = int(offsets[-1]) + 1

    @property
    def queue_spans(self) -> dict[Queue, QueueSpan]:
        """First and end offset of each queue; both are 0 without messages since the topic was created again."""
        floors = self.restart_offsets
        return {
            queue: QueueSpan(run.first, self._ends[queue], floor=floors.get(queue))
            if run.last >= floors.get(queue, 0)
            else QueueSpan(0, 0, floor=floors[queue])
            for queue, run in self._runs.items()
        }

    @property
    def restart_offsets(self) -> Mapping[Queue, int]:
        """Physical offset of the first record of each queue whose topic was created again."""
        if self._floors is None:
            self._floors = find_topic_restarts(self._runs, self._is_gone)
        return self._floors


class MessageCounter(Protocol):
    """Interface of a counter to which messages are passed in batches.

    Attributes:
        starts: The queues, each with the offset of the first message that is needed. Other messages may come as well.
        columns: Columns that batches must have; they may have others.
        until_ms: Messages that were stored later are not needed, ms since 1970; None for no limit.
        since_ms: Messages that were stored earlier are not needed, ms since 1970; None for no limit.
        log_start: Records that begin before this physical offset are not needed; None for no limit.
    """

    @property
    def starts(self) -> Mapping[Queue, int]: ...  # noqa: D102
    @property
    def columns(self) -> Collection[str]: ...  # noqa: D102
    @property
    def until_ms(self) -> int | None: ...  # noqa: D102
    @property
    def since_ms(self) -> int | None: ...  # noqa: D102
    @property
    def log_start(self) -> int | None: ...  # noqa: D102

    def add_batch(self, broker: str, batch: pa.RecordBatch) -> None:
        """Count the messages of a batch from one store, except those of queues that are not to be counted."""

    def partial_counts(self) -> Any:
        """Return the counts so far, which can be sent to another process."""

    def add_partial_counts(self, counts: Any) -> None:
        """Add the `partial_counts` of a copy that was given other batches."""


class StoredMessages(Protocol):
    """Interface to one store's messages, in a lake or in the store's own files.

    Attributes:
        has_deleted: True if messages that the broker has deleted can still be read.
    """

    has_deleted: bool

    def measure_queues(
        self, times: CountLimits, topics: Collection[str], counters: Sequence[MessageCounter]
    ) -> dict[Queue, QueueSpan]:
        """Pass each counter the messages that it needs, and return the first and end offset of each queue.

        Args:
            times: Times at which the ends of queues are wanted.
            topics: Topics whose queues are measured.
            counters: Counters to feed with messages.

        Returns:
            First and end offsets of the queues of these topics.
        """
