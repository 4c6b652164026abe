"""Finding messages by queue and number or time: where a queue offset lies in a queue, and what is answered."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from commitlake.broker_lite.stores.engine.message_log import MessageLog, StoredMessage

DEFAULT_MAX_MESSAGES = 32
"""What a consumer asks for at once."""

M = TypeVar("M", bound=StoredMessage)


class GetStatus(StrEnum):
    """The answer to a `get`, as RocketMQ's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"


class Place(NamedTuple):
    """Where a queue offset lies.

    Attributes:
        status: FOUND where there is an entry, else why there is none.
        next_offset: the queue offset to ask for, or to ask for instead.
        min_offset: of the queue's first message that is kept.
        max_offset: of the queue's next message.
    """

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int


class Numbered(Protocol):
    """A queue, as far as its numbers go."""

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message."""

    def min_offset(self, min_physical_offset: int, /) -> int:
        """Queue offset of the first entry whose record the log still has."""


def place_in(queue: Numbered | None, log_start: int, queue_offset: int) -> Place:
    """Where a queue offset lies in a queue, if there is one, of a log that begins at `log_start`."""
    if queue is None:
        return Place(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_offset(log_start), queue.max_offset
    if high == 0:
        return Place(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if queue_offset < low:
        return Place(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if queue_offset == high:
        return Place(GetStatus.OFFSET_OVERFLOW_ONE, high, low, high)
    if queue_offset > high:
        return Place(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return Place(GetStatus.FOUND, queue_offset, low, high)


class GetResult(NamedTuple, Generic[M]):
    """Messages of a queue.

    Attributes:
        status: whether there were any, and why not.
        messages: in order of their queue offsets.
        next_offset: the queue offset to ask for next.
        min_offset: of the queue's first message that is kept.
        max_offset: of the queue's next message.
    """

    status: GetStatus
    messages: list[M]
    next_offset: int
    min_offset: int
    max_offset: int


class StoredQueue(Numbered, Protocol):
    """A queue of a store."""

    topic: str
    queue_id: int

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry."""

    def number_by_time(self, timestamp_ms: int, log: MessageLog[Any], /) -> int:
        """Queue offset of the first message stored at or after a time; `max_offset` where there is none."""


Q_co = TypeVar("Q_co", bound=StoredQueue, covariant=True)


class Queues(Protocol[Q_co]):
    """The queues of a store."""

    def find(self, topic: str, queue_id: int) -> Q_co | None:
        """The queue, if it exists."""

    def __iter__(self) -> Iterator[Q_co]:
        """All queues."""


class QueueReader(Generic[M, Q_co]):
    """Looks messages up in a log and the queues that lead into it; the caller holds the store's lock."""

    def __init__(self, log: MessageLog[M], queues: Queues[Q_co]) -> None:
        self._log = log
        self._queues = queues

    @property
    def log_start(self) -> int:
        """Offset of the first byte that the log has."""
        return self._log.start

    @property
    def log_end(self) -> int:
        """Offset behind the last record."""
        return self._log.end

    def queues(self) -> list[tuple[str, int]]:
        """Topic and number of every queue that has entries, in order."""
        return sorted((queue.topic, queue.queue_id) for queue in self._queues if not queue.is_empty)

    def bounds(self, topic: str, queue_id: int) -> range:
        """The queue offsets of a queue's messages; empty for an unknown queue."""
        queue = self._queues.find(topic, queue_id)
        return range(0) if queue is None else range(queue.min_offset(self._log.start), queue.max_offset)

    def offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """Queue offset of the first message stored at or after a time; the queue's end where there is none."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.number_by_time(timestamp_ms, self._log)

    def message_at(self, offset: int) -> M | None:
        """The message whose record begins at an offset of the log, if one does."""
        return self._log.message_at(offset)

    def record_at(self, offset: int, size: int) -> bytes:
        """The bytes of a record whose place and size are known."""
        return self._log.files.read(offset, size)
