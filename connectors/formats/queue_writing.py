"""How a format writes a queue's files anew, from the entries that its log gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from commitlake.connectors.arrays import Array


class NewQueueFiles(Protocol):
    """The files of one queue while they are written; positions are bytes of the queue.

    Attributes:
        start: byte position at which the first file begins.
    """

    start: int

    def clear(self) -> None:
        """Remove the files."""

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes, in as many files as they lie in."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes that were written."""


@dataclass(frozen=True, slots=True)
class NewQueue:
    """A queue that is to be written.

    Attributes:
        file_size: bytes of each of its files.
        is_batch: whether it is one of the format's `batch_queues`.
        closes_head: whether it begins at 0 although the log lacks its first messages.
        log_start: physical offset of the log's first byte.
    """

    file_size: int
    is_batch: bool
    closes_head: bool
    log_start: int


class QueueWriter(Protocol):
    """Writes one queue, by the rules by which the broker does it."""

    @property
    def skipped(self) -> int:
        """Entries that were passed over, as the queue has their numbers, or cannot have them."""

    @property
    def shifted(self) -> int:
        """Entries that stand in front of their numbers, as the log lacks others."""

    @property
    def lost(self) -> int:
        """Entries that stand for messages which the log lacks."""

    def add(self, entries: Array, numbers: Array | None, first: int) -> None:
        """Append the entries of a part.

        Args:
            entries: uint8[entries, bytes].
            numbers: their queue offsets.
            first: of the first, where there are no numbers.
        """
