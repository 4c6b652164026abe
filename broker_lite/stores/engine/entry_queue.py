"""Queue of entries in files. All entries have the same size, and each points to a record of the log.

A queue is an index: its content is derived from the log, and it is rebuilt from the log when in doubt.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.record_log import MessageLog


class EntryQueue(ABC):
    """Entries of one queue, stored in files.

    The place of an entry is its byte position divided by `entry_size`.

    Attributes:
        topic: topic of the queue.
        queue_id: id of the queue within the topic.
        files: files with the bytes of the entries.
    """

    entry_size: ClassVar[int]

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.files = files

    @property
    def name(self) -> str:
        """Topic and queue id of the queue, as text for log and error messages."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def is_empty(self) -> bool:
        """True if the queue has no entry, not even filler."""
        return self.files.end == self.files.start

    @property
    def entry_range(self) -> range:
        """Range of the numbers of the entries in the files; entry n begins at byte n * entry size."""
        return range(self.files.start // self.entry_size, self.files.end // self.entry_size)

    @abstractmethod
    def _entry_points_before(self, entry_number: int, log_offset: int) -> bool:
        """Return whether the entry with a number is filler, or its record is before an offset of the log."""

    def first_entry_at_or_after(self, log_offset: int) -> int:
        """Return the number of the first entry that points to or after an offset of the log, else the end."""
        first = self.files.start // self.entry_size
        if self.is_empty or not self._entry_points_before(first, log_offset):
            return first  # the usual case: nothing has expired
        places = self.entry_range
        return first + bisect_left(places, True, key=lambda place: not self._entry_points_before(place, log_offset))

    @staticmethod
    @abstractmethod
    def _count_valid_entries(data: bytes) -> int:
        """Return the number of valid entries before the first invalid one; must be fast, because files are large."""

    def _find_entries_end(self, file_starts: Sequence[int]) -> int:
        """Return the byte position of the first invalid entry, searched in the files with the given start positions."""
        end = self.files.start
        for start in file_starts:
            end = start + self.entry_size * self._count_valid_entries(self.files.read(start, self.files.file_size))
            if end < start + self.files.file_size:
                break
        return end

    def truncate_to(self, byte_position: int) -> None:
        """Truncate the queue to a byte position.

        The entries after it are erased: otherwise, once the log has grown past the records that they pointed to, they
        would be taken for valid entries.
        """
        self.files.truncate(byte_position)
        self.files.clear_after_end()

    def truncate_to_log_offset(self, log_offset: int) -> None:
        """Remove the entries of records at or after an offset of the log; if the offset is 0, remove filler, too."""
        place = self.first_entry_at_or_after(log_offset) if log_offset else self.entry_range.start
        self.truncate_to(place * self.entry_size)

    def delete_expired(self, log_offset: int) -> None:
        """Delete files whose entries all point before an offset of the log; keep the last file for its numbering."""
        count = 0
        for start in self.files.file_starts[:-1]:
            if not self._entry_points_before((start + self.files.file_size) // self.entry_size - 1, log_offset):
                break
            count += 1
        self.files.delete_oldest_files(count)


class NumberedQueue(EntryQueue):
    """Queue with one entry per message; the number of an entry is the queue offset of its message."""

    @property
    def first_queue_offset(self) -> int:
        """Queue offset of the first entry in the files, even if it is filler."""
        return self.files.start // self.entry_size

    @property
    def max_offset(self) -> int:
        """Next queue offset, which the next message gets."""
        return self.files.end // self.entry_size

    def min_offset(self, log_offset: int) -> int:
        """Return the queue offset of the first entry whose record is still in the log, or `max_offset`."""
        return self.first_entry_at_or_after(log_offset)

    @abstractmethod
    def log_offset_at(self, queue_offset: int) -> int:
        """Return the log offset of the record that an entry points to."""

    def queue_offset_by_time(self, timestamp_ms: int, log: MessageLog[Any]) -> int:
        """Return the queue offset of the first message stored at or after a time, or `max_offset`."""
        numbers = range(self.min_offset(log.start), self.max_offset)

        def store_time_of(queue_offset: int) -> int:
            return log.store_timestamp_at(self.log_offset_at(queue_offset)) or 0

        return numbers.start + bisect_left(numbers, timestamp_ms, key=store_time_of)
