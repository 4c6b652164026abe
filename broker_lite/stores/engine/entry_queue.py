"""One queue: entries of one size, one after another in files. Each leads to a record of the log.

A queue is an index: what it says follows from the log, and it is written from there again where there is any doubt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.message_log import MessageLog


class EntryQueue(ABC):
    """The entries of one queue.

    The place of an entry is its position in bytes, divided by `entry_size`.

    Attributes:
        topic: its topic.
        queue_id: its number within the topic.
        files: its bytes.
    """

    entry_size: ClassVar[int]

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = files

    @property
    def name(self) -> str:
        """Topic and number, for a message."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry, not even filler."""
        return self.files.end == self.files.start

    @property
    def places(self) -> range:
        """The places of the entries."""
        return range(self.files.start // self.entry_size, self.files.end // self.entry_size)

    @abstractmethod
    def _leads_before(self, place: int, log_offset: int) -> bool:
        """Return whether the entry at a place is filler or leads before an offset of the log."""

    def first_place(self, log_offset: int) -> int:
        """The place of the first entry that leads to an offset of the log or behind it; behind the last one if none."""
        first = self.files.start // self.entry_size
        if self.is_empty or not self._leads_before(first, log_offset):
            return first  # as nearly always: nothing has expired
        places = self.places
        return first + bisect_left(places, True, key=lambda place: not self._leads_before(place, log_offset))

    @staticmethod
    @abstractmethod
    def _count_valid(data: bytes) -> int:
        """Count the entries before the first that is not valid; a busy queue's file has 300,000."""

    def _end_of_entries(self, starts: Sequence[int]) -> int:
        """Where the first entry that is not valid begins, in the files that begin at these positions."""
        end = self.files.start
        for start in starts:
            end = start + self.entry_size * self._count_valid(self.files.read(start, self.files.file_size))
            if end < start + self.files.file_size:
                break
        return end

    def truncate_to(self, end: int) -> None:
        """Let the queue end at a byte position.

        Entries after it are erased: once the log has gone on past the records that they led to, they would pass for
        entries again.
        """
        self.files.truncate(end)
        self.files.clear_rest()

    def truncate_physically(self, log_offset: int) -> None:
        """Drop the entries of records at or after an offset of the log; filler, too, if nothing of the log is left."""
        place = self.first_place(log_offset) if log_offset else self.places.start
        self.truncate_to(place * self.entry_size)

    def delete_expired(self, log_offset: int) -> None:
        """Remove the files that only lead before an offset of the log; the last stays: it carries the numbers on."""
        count = 0
        for start in self.files.file_starts[:-1]:
            if not self._leads_before((start + self.files.file_size) // self.entry_size - 1, log_offset):
                break
            count += 1
        self.files.delete_first(count)


class NumberedQueue(EntryQueue):
    """A queue in which an entry is a message's, and the message's number the entry's place."""

    @property
    def first_number(self) -> int:
        """Queue offset of the first entry in the files, filler or not."""
        return self.files.start // self.entry_size

    @property
    def max_offset(self) -> int:
        """Queue offset of the next message."""
        return self.files.end // self.entry_size

    def min_offset(self, log_offset: int) -> int:
        """Queue offset of the first entry whose record the log still has; `max_offset` where there is none."""
        return self.first_place(log_offset)

    @abstractmethod
    def log_offset_at(self, number: int) -> int:
        """Offset of the record that an entry leads to."""

    def number_by_time(self, timestamp_ms: int, log: MessageLog[Any]) -> int:
        """Queue offset of the first message stored at or after a time; `max_offset` where there is none."""
        numbers = range(self.min_offset(log.start), self.max_offset)

        def stored(number: int) -> int:
            return log.store_timestamp_at(self.log_offset_at(number)) or 0

        return numbers.start + bisect_left(numbers, timestamp_ms, key=stored)
