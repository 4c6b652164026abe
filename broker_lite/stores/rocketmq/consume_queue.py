"""ConsumeQueues, which contain the positions of messages in the CommitLog, and code shared with BatchConsumeQueues.

`consumequeue/<topic>/<queueId>/`. A queue is an index: its content is derived from the log, and missing entries are
written again from there. Entry i is at byte 20 * i, so a queue whose first known message is not number 0 begins with
filler. Source: org.apache.rocketmq.store.ConsumeQueue, ConsumeQueueStore.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from commitlake.broker_lite.stores.engine.entry_queue import EntryQueue, NumberedQueue
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.log_writer import QueueGapError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.queue_table import QueueTable
from commitlake.broker_lite.stores.rocketmq.commitlog import CommitLog
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch
from commitlake.schemas.layouts.rocketmq.consumequeue import (
    ENTRY,
    PRE_BLANK,
    ConsumeQueueEntry,
    parse_entry,
    serialize_entry,
)
from commitlake.schemas.layouts.segment_names import max_entry_number

FOLDER = "consumequeue"
FILES_READ_ON_RECOVERY = 3
"""Number of last files of a queue in which its end is searched; the files before them are full."""
_MAX_QUEUE_OFFSET = max_entry_number(ENTRY.size)
_pack_entry = ENTRY.struct.pack_into
_logger = logging.getLogger(__name__)


class QueueUnit(NamedTuple):
    """Location of a record in the log, with the queue offsets of its messages.

    Attributes:
        entry: position of the record in the log.
        first_number: queue offset of its first message.
        following: queue offset after its last message.
    """

    entry: ConsumeQueueEntry
    first_number: int
    following: int


class CommitLogQueue(EntryQueue):
    """Entries of one queue, with the position of the last record that has an entry.

    Attributes:
        last_record: physical offset of the last record that has an entry, -1 if there is none.
        max_physical_offset: physical offset of the end of that record, -1 if there is none.
    """

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        """Load the entries of the files, up to the first invalid one."""
        super().__init__(topic, queue_id, files)
        self.last_record = self.max_physical_offset = -1
        if not files.is_empty:
            self.truncate_to(self._find_entries_end(files.file_starts[-FILES_READ_ON_RECOVERY:]))

    def clear(self) -> None:
        """Remove all entries; the queue starts again."""
        self.files.delete()
        self.last_record = self.max_physical_offset = -1


class ConsumeQueue(NumberedQueue, CommitLogQueue):
    """One ConsumeQueue, a queue with an entry of 20 bytes for each message."""

    entry_size = ENTRY.size

    def entry(self, queue_offset: int) -> ConsumeQueueEntry:
        """Return the entry at a queue offset, which must be from `first_number` to `max_offset` - 1."""
        return parse_entry(*self.files.locate(queue_offset * ENTRY.size))

    def read_queue_units(self, queue_offset: int) -> Iterator[QueueUnit]:
        """Yield the entries from a queue offset on, including filler."""
        for number in range(max(queue_offset, self.first_queue_offset), self.max_offset):
            yield QueueUnit(self.entry(number), number, number + 1)

    def append(
        self, physical_offset: int, size: int, tags_code: int, _store_timestamp: int = 0, _message_count: int = 1
    ) -> None:
        """Append an entry for the next message; unlike in BatchConsumeQueues, time and count are not stored."""
        memory, position = self.files.locate_end()
        _pack_entry(memory, position, physical_offset, size, tags_code)
        self.files.end += ENTRY.size
        self.last_record = physical_offset
        self.max_physical_offset = physical_offset + size

    def append_all(self, entries: Sequence[tuple[int, int, int]], _store_timestamp: int) -> None:
        """Append an entry for each (physical offset, size, tag hash) tuple of the next messages."""
        done = 0
        while done < len(entries):
            memory, position = self.files.locate_end()
            fitting = entries[done : done + (self.files.file_size - position) // ENTRY.size]
            for number, entry in enumerate(fitting):
                _pack_entry(memory, position + number * ENTRY.size, *entry)
            self.files.end += len(fitting) * ENTRY.size
            done += len(fitting)
        if entries:
            self.last_record, size, _ = entries[-1]
            self.max_physical_offset = self.last_record + size

    def append_recovered(self, dispatch: Dispatch, *, reads_whole_log: bool) -> None:
        """Append the entry of a record that recovery has read from the log, unless the queue already has it.

        Raises:
            QueueGapError: if the queue ends before the record's queue offset, and the missing records may be in the
            part of the log that was not read.
        """
        position = dispatch.queue_offset * ENTRY.size
        # Either the queue has the record, or its place is taken by a later one. RocketMQ skips both, too.
        if dispatch.physical_offset + dispatch.size <= self.max_physical_offset or position < self.files.end:
            return
        if position > self.files.end:
            found = f"{self.name}: expected message {self.max_offset}, found {dispatch.queue_offset}"
            # The missing entries are before the part that is read, so recovery must read the whole log.
            if not reads_whole_log:
                raise QueueGapError(found)
            if self.is_empty and dispatch.queue_offset <= _MAX_QUEUE_OFFSET:
                self._start_at_byte_position(position)
            else:
                # Messages of this queue are missing in the log itself; RocketMQ also continues without them.
                _logger.warning("%s", found)
        self.append(dispatch.physical_offset, dispatch.size, dispatch.tags_code)

    def _start_at_byte_position(self, position: int) -> None:
        self.files.set_start(position)
        if filler := (position - self.files.start) // ENTRY.size:
            self.files.append(serialize_entry(PRE_BLANK) * filler)

    def drop_invalid_tail(self, log: CommitLog) -> None:
        """Remove entries at the end that point to no valid record, because a crash may leave garbage in the files.

        Entries of expired records stay, to keep the queue's numbering.
        """
        while not self.is_empty:
            last = self.entry(self.max_offset - 1)
            if last == PRE_BLANK or last.physical_offset < log.start:
                return
            message = log.message_at(last.physical_offset)
            if message is not None and message.size == last.size:
                return
            self.truncate_to(self.files.end - ENTRY.size)

    def truncate_to(self, byte_position: int) -> None:
        """Truncate the queue to a byte position, and erase the entries after it."""
        super().truncate_to(byte_position)
        self.last_record = self.max_physical_offset = -1
        if not self.is_empty and (last := self.entry(self.max_offset - 1)) != PRE_BLANK:
            self.last_record = last.physical_offset
            self.max_physical_offset = last.physical_offset + last.size

    def log_offset_at(self, queue_offset: int) -> int:
        """Return the physical offset of the record that an entry points to."""
        return self.entry(queue_offset).physical_offset

    def _entry_points_before(self, entry_number: int, log_offset: int) -> bool:
        entry = self.entry(entry_number)
        return entry == PRE_BLANK or entry.physical_offset < log_offset

    @staticmethod
    def _count_valid_entries(data: bytes) -> int:
        count = 0
        for physical_offset, size, _ in ENTRY.struct.iter_unpack(data):
            if physical_offset < 0 or size <= 0:
                break
            count += 1
        return count


class ConsumeQueues(QueueTable[ConsumeQueue]):
    """All ConsumeQueues of a store."""

    def __init__(self, root: Path, file_size: int, mappings: MappedFiles) -> None:
        """Open the queues of the store at `root`."""
        super().__init__(root / FOLDER, file_size, "consume_queue_file_size_bytes", mappings)

    def _make_queue(self, topic: str, queue_id: int, files: FileQueue) -> ConsumeQueue:
        return ConsumeQueue(topic, queue_id, files)
