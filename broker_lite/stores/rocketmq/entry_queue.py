"""Queue that points into a CommitLog: base class of ConsumeQueue and BatchConsumeQueue."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.stores.engine.entry_queue import EntryQueue
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry

FILES_READ_ON_RECOVERY = 3
"""Number of last files of a queue in which its end is searched; the files before them are full."""


class QueueUnit(NamedTuple):
    """Record of a queue.

    Attributes:
        entry: position of the record in the log.
        first_number: queue offset of its first message.
        following: queue offset after its last message.
    """

    entry: ConsumeQueueEntry
    first_number: int
    following: int


class CommitLogQueue(EntryQueue):
    """Entries of one queue, and the last record that it points to.

    Attributes:
        last_record: physical offset of the last entry's record, -1 if there is none.
        max_physical_offset: physical offset of the end of that record, -1 if there is none.
    """

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        """Load the entries of the files, up to the first invalid one."""
        super().__init__(topic, queue_id, files)
        self.last_record = self.max_physical_offset = -1
        if not files.is_empty:
            self.truncate_to(self._end_of_entries(files.file_starts[-FILES_READ_ON_RECOVERY:]))

    def clear(self) -> None:
        """Remove all entries; the queue starts again."""
        self.files.delete()
        self.last_record = self.max_physical_offset = -1
