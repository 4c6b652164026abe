"""A queue that leads into a CommitLog, of either kind: ConsumeQueues and BatchConsumeQueues."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.broker_lite.stores.engine.entry_queue import EntryQueue
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.schemas.layouts.rocketmq.consumequeue import Entry

FILES_READ_ON_RECOVERY = 3
"""The last files of a queue, in which its end is looked for; those before them are full."""


class QueueUnit(NamedTuple):
    """A record of a queue.

    Attributes:
        entry: where it stands in the log.
        first_number: queue offset of its first message.
        following: queue offset after its last message.
    """

    entry: Entry
    first_number: int
    following: int


class CommitLogQueue(EntryQueue):
    """The entries of one queue, and the last record that it leads to.

    Attributes:
        last_record: physical offset of the last entry's record, -1 where there is none.
        max_physical_offset: physical offset after that record, -1 where there is none.
    """

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        """Take the entries that the files hold, up to the first that is not valid."""
        super().__init__(topic, queue_id, files)
        self.last_record = self.max_physical_offset = -1
        if not files.is_empty:
            self.truncate_to(self._end_of_entries(files.file_starts[-FILES_READ_ON_RECOVERY:]))

    def clear(self) -> None:
        """Remove all entries: the queue begins anew."""
        self.files.delete()
        self.last_record = self.max_physical_offset = -1
