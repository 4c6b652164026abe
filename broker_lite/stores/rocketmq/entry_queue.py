"""What ConsumeQueues and BatchConsumeQueues have in common: entries of one size, one after another in files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.queue_table import FILES_READ_ON_RECOVERY


class EntryQueue(ABC):
    """The entries of one queue.

    Attributes:
        topic: its topic.
        queue_id: its number within the topic.
        files: its bytes.
        last_record: physical offset of the last entry's record, -1 where there is none.
        max_physical_offset: physical offset after that record, -1 where there is none.
    """

    entry_size: ClassVar[int]

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        """Take the entries that the files hold, up to the first that is not valid."""
        self.topic = topic
        self.queue_id = queue_id
        self.files = files
        self.last_record = self.max_physical_offset = -1
        if not files.is_empty:
            self._find_end()

    def _find_end(self) -> None:
        end = self.files.start
        for start in self.files.file_starts[-FILES_READ_ON_RECOVERY:]:
            end = start + self.entry_size * self._count_valid(self.files.read(start, self.files.file_size))
            if end < start + self.files.file_size:
                break
        self.truncate_to(end)

    @staticmethod
    @abstractmethod
    def _count_valid(data: bytes) -> int:
        """Count the entries before the first that is not valid; a busy queue's file has 300,000."""

    @abstractmethod
    def truncate_to(self, end: int) -> None:
        """Let the queue end at a byte position.

        Entries after it are erased: once the log has gone on past the records that they led to, they would pass for
        entries again.
        """

    @property
    def is_empty(self) -> bool:
        """Whether it has no entry, not even filler."""
        return self.files.end == self.files.start

    @abstractmethod
    def _may_have_expired(self, place: int, min_physical_offset: int) -> bool:
        """Return whether the entry at a place is filler or leads before an offset of the log."""

    def delete_expired(self, min_physical_offset: int) -> None:
        """Remove the files that only lead before an offset of the log; the last stays: it carries the numbers on."""
        count = 0
        for start in self.files.file_starts[:-1]:
            last = (start + self.files.file_size) // self.entry_size - 1
            if not self._may_have_expired(last, min_physical_offset):
                break
            count += 1
        self.files.delete_first(count)
