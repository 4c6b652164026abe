"""Where a queue offset lies in a queue, and the answer to whoever asks for its messages."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, NamedTuple, Protocol, TypeVar

DEFAULT_MAX_MESSAGES = 32
"""What a consumer asks for at once."""

M = TypeVar("M")


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
