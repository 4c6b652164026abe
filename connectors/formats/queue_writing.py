"""Interfaces for rebuilding a queue's files from the entries that a log yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from commitlake.connectors.arrays import Array


class NewQueueFiles(Protocol):
    """Files of one queue while they are written; positions are bytes of the queue.

    Attributes:
        start: byte position at which the first file begins.
    """

    start: int

    def clear(self) -> None:
        """Delete the files."""

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes, in as many files as needed."""

    def read(self, position: int, size: int) -> bytes:
        """Return bytes that were written."""


@dataclass(frozen=True, slots=True)
class NewQueue:
    """Queue that is to be rebuilt.

    Attributes:
        file_size: size of each of its files, bytes.
        is_batch: whether it is one of the format's `batch_queues`.
        closes_head: whether the queue begins at 0 even if the log lacks its first messages.
        log_start: physical offset of the log's first byte.
    """

    file_size: int
    is_batch: bool
    closes_head: bool
    log_start: int


class QueueWriter(Protocol):
    """Writer of one queue, by the broker's rules."""

    @property
    def skipped(self) -> int:
        """Number of entries that were skipped, because their offsets are taken or impossible."""

    @property
    def shifted(self) -> int:
        """Number of entries placed before their offsets, because the log lacks others."""

    @property
    def lost(self) -> int:
        """Number of entries for messages that the log lacks."""

    def add(self, entries: Array, numbers: Array | None, first: int) -> None:
        """Append entries.

        Args:
            entries: uint8[entries, bytes].
            numbers: queue offsets of the entries.
            first: number of the first entry, if there are no numbers.
        """
