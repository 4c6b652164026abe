"""Reading of messages by queue and offset or time: results of reads, and limits of pulls.

Each layout has its own loop for pulls. RocketMQ's filters by queue entries and copies records as they are; JMQ's parses
each record to convert it to one that RocketMQ's clients can read. Source: DefaultMessageStore.getMessage,
isTheBatchFull.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from commitlake.broker_lite.stores.engine.record_log import MessageLog, StoredMessage

DEFAULT_MAX_MESSAGES = 32
"""Number of messages that a consumer requests at once."""
MAX_EXAMINED = 800
"""Maximum number of entries that one pull examines if its filter accepts few of them."""

M = TypeVar("M", bound=StoredMessage)


class GetStatus(StrEnum):
    """Result of reading messages from a queue, as RocketMQ's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


class QueuePosition(NamedTuple):
    """Position of a requested queue offset relative to the queue's range, and the offset to continue at.

    Attributes:
        status: FOUND if there is an entry, else the reason why there is none.
        next_offset: the requested offset if an entry exists there, else the offset to request instead.
        min_offset: queue offset of the queue's first message.
        max_offset: queue offset of the queue's next message.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int


class BoundedQueue(Protocol):
    """Interface of a queue whose first and next offsets are known."""

    @property
    def max_offset(self) -> int:
        """Next queue offset of the queue."""

    def min_offset(self, min_physical_offset: int, /) -> int:
        """Return the queue offset of the first entry whose record is still in the log."""


def locate_offset(queue: BoundedQueue | None, log_start: int, queue_offset: int) -> QueuePosition:
    """Return whether a queue offset is before, in or after a queue's range, with the offset to request next.

    Args:
        queue: the queue; None if it is unknown.
        log_start: offset of the first byte of the log.
        queue_offset: the offset to locate.
    """
    if queue is None:
        return QueuePosition(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_offset(log_start), queue.max_offset
    if high == 0:
        return QueuePosition(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return QueuePosition(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return QueuePosition(GetStatus.OFFSET_OVERFLOW_ONE, high, low, high)
    if queue_offset > high:
        return QueuePosition(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return QueuePosition(GetStatus.FOUND, queue_offset, low, high)


class GetResult(NamedTuple, Generic[M]):
    """Messages read from a queue, and the queue offset at which to continue.

    Attributes:
        status: FOUND, or the reason why there are no messages.
        messages: messages in order of their queue offsets.
        next_offset: queue offset to request next.
        min_offset: queue offset of the queue's first message.
        max_offset: queue offset of the queue's next message.
    """

    status: GetStatus
    messages: list[M]
    next_offset: int
    min_offset: int
    max_offset: int


class StoredQueue(BoundedQueue, Protocol):
    """Interface of a queue of a store."""

    topic: str
    queue_id: int

    @property
    def is_empty(self) -> bool:
        """True if the queue has no entry."""

    def queue_offset_by_time(self, timestamp_ms: int, log: MessageLog[Any], /) -> int:
        """Return the queue offset of the first message stored at or after a time, or `max_offset`."""


Q_co = TypeVar("Q_co", bound=StoredQueue, covariant=True)


class Queues(Protocol[Q_co]):
    """Interface of all queues of a store."""

    def find(self, topic: str, queue_id: int) -> Q_co | None:
        """Return the queue, or None."""

    def __iter__(self) -> Iterator[Q_co]:
        """Iterate over all queues."""


class QueueReader(Generic[M, Q_co]):
    """Reader of messages in a log and its queues; the caller holds the store's lock."""

    def __init__(self, log: MessageLog[M], queues: Queues[Q_co]) -> None:
        self._log = log
        self._queues = queues

    @property
    def log_start(self) -> int:
        """Offset of the first byte of the log."""
        return self._log.start

    @property
    def log_end(self) -> int:
        """Offset of the end of the last record."""
        return self._log.end

    def queues(self) -> list[tuple[str, int]]:
        """Return the sorted (topic, queue id) pairs of the queues that have entries."""
        return sorted((queue.topic, queue.queue_id) for queue in self._queues if not queue.is_empty)

    def queue_offset_range(self, topic: str, queue_id: int) -> range:
        """Return the range of queue offsets of a queue's messages; empty for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return range(0) if queue is None else range(queue.min_offset(self._log.start), queue.max_offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Return the queue offset of the first message stored at or after a time; without one, the end of the queue."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.queue_offset_by_time(timestamp_ms, self._log)

    def message_at(self, offset: int) -> M | None:
        """Return the message whose record begins at an offset of the log, or None."""
        return self._log.message_at(offset)

    def record_at(self, offset: int, size: int) -> bytes:
        """Return the bytes of a record with a known offset and size."""
        return self._log.files.read(offset, size)


class PullLimits(NamedTuple):
    """Limits of one pull, which a single large record may exceed.

    Attributes:
        messages: maximum number of messages.
        bytes: maximum size of all records together.
        deadline: time by `time.perf_counter` at which the pull returns what it has found; it examines at least one
            entry.
    """

    messages: int
    bytes: int
    deadline: float = math.inf

    @property
    def is_deadline_passed(self) -> bool:
        """Return True if the deadline has passed."""
        return time.perf_counter() >= self.deadline


class PullResult(NamedTuple):
    """Records that a pull has read from a queue, and the queue offset at which to continue.

    Attributes:
        status: FOUND, or the reason why there are no records.
        records: records in the form for clients, in order of their queue offsets.
        next_offset: queue offset to pull from next.
        min_offset: queue offset of the queue's first message.
        max_offset: queue offset of the queue's next message.
        is_cut: True if the deadline passed before the pull had examined all its entries.
    """

    status: GetStatus
    records: list[bytes]
    next_offset: int
    min_offset: int
    max_offset: int
    is_cut: bool = False
