"""Queues of a store in JMQ's layout, which contain the positions of messages in the journal.

`queue/<topic>/<queueId>/`. A queue is an index: its content is derived from the journal, and it is rebuilt from the
journal when in doubt. Entry i is at byte 22 * i, and a file is named by the position of its first entry: a queue whose
first known message is not number 0 begins with a file of that name. The entry of a message that is lost from the
journal has size 0.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

from commitlake.broker_lite.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.entry_queue import NumberedQueue
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.log_writer import QueueGapError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.queue_table import QueueTable
from commitlake.broker_lite.stores.engine.topic_names import is_valid_topic
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import MIN_RECORD_SIZE, JournalMessage
from commitlake.schemas.layouts.jmq.queue_file import (
    CRC_POSITION,
    ENTRY,
    FOLDER,
    JmqQueueEntry,
    count_valid_entries,
    parse_entry,
)
from commitlake.schemas.layouts.segment_names import max_entry_number

_MAX_QUEUE_OFFSET = max_entry_number(ENTRY.size)
_pack_entry = ENTRY.struct.pack_into
_logger = logging.getLogger(__name__)


class JournalQueue(NumberedQueue):
    """Entries of one queue, each of which points to a message of the journal; `recover` must set its end."""

    entry_size = ENTRY.size

    def log_offset_at(self, queue_offset: int) -> int:
        """Return the journal offset of the record that an entry points to."""
        return self.entry(queue_offset).journal_offset

    def _entry_points_before(self, entry_number: int, log_offset: int) -> bool:
        return self.entry(entry_number).journal_offset < log_offset

    @staticmethod
    def _count_valid_entries(data: bytes) -> int:
        return count_valid_entries(data)

    def entry(self, queue_offset: int) -> JmqQueueEntry:
        """Return the entry at a queue offset, which must be from `first_number` to `max_offset` - 1.

        Raises:
            StoreFilesError: if the entry is damaged.
        """
        try:
            entry = parse_entry(*self.files.locate(queue_offset * ENTRY.size))
            found = "expected an entry, found zeros"
        except LayoutError as error:
            entry, found = None, str(error)
        if entry is None:
            hint = f"delete {self.files.folder} and open the store again to rebuild it"
            raise StoreFilesError(
                f"the message with queue offset {queue_offset} of {self.name} cannot be found: {found}; {hint}"
            )
        return entry

    def append(self, journal_offset: int, size: int) -> None:
        """Append an entry for the queue's next message."""
        self.files.create_files_for(ENTRY.size)
        self._write_entry(self.files.end, journal_offset, size)
        self.files.end += ENTRY.size

    def _write_entry(self, byte_position: int, journal_offset: int, size: int) -> None:
        memory, position = self.files.locate(byte_position)
        _pack_entry(memory, position, journal_offset, size, 0, 0)
        crc = zlib.crc32(memory[position : position + CRC_POSITION])
        memory[position + CRC_POSITION : position + ENTRY.size] = crc.to_bytes(8, "big")

    def append_recovered(self, message: JournalMessage, *, reads_whole_journal: bool, journal_start: int) -> None:
        """Append the entry of a record that recovery has read from the journal.

        A record's checksum only covers its body: a record with a damaged queue id or offset must not prevent later
        records from being entered. So offsets may be missing, as many as there was room for; they count as lost until a
        record with that offset comes.

        Args:
            reads_whole_journal: whether all earlier records of the journal were read, too.
            journal_start: first offset of the journal.

        Raises:
            QueueGapError: if the queue ends before the record's queue offset, and the missing records may be in the
            part of the journal that was not read. LayoutError: if the record has an impossible queue offset.
        """
        number, offset = message.queue_offset, message.journal_offset
        if number > self.max_offset and not reads_whole_journal:
            raise QueueGapError(
                f"queue {self.name}: expected the message with queue offset {self.max_offset} next, found {number}"
            )
        if self._must_restart_at(number, journal_start):
            self.files.delete()
            self.files.set_start(number * ENTRY.size, starts_file_at_offset=True)
        missing = number - self.max_offset
        previous_offset = journal_start if self.is_empty else self.entry(self.max_offset - 1).journal_offset
        # A lost message had MIN_RECORD_SIZE bytes at least, so no more can be missing than fit between the two records.
        if missing > (most := max(0, offset - previous_offset) // MIN_RECORD_SIZE) or not self._is_free_offset(number):
            expected = f"a missing message of {self.name}, from {self.first_queue_offset} to"
            raise LayoutError("queue_offset", offset, f"{expected} {self.max_offset + most}", f"{number}")
        if missing < 0:
            self._write_entry(number * ENTRY.size, offset, message.size)
            return
        if missing:
            _logger.warning("%s: %d messages from %d on are not in the journal", self.name, missing, self.max_offset)
        # With the place of the next record, so that the places in a queue keep rising, as searches in it expect.
        for _ in range(missing):
            self.append(offset, 0)
        self.append(offset, message.size)

    def _must_restart_at(self, queue_offset: int, journal_start: int) -> bool:
        """Return whether the queue must be emptied and started again at the queue offset of a recovered record.

        This is so for an empty queue that ends elsewhere, if the journal no longer begins at 0, and for a queue whose
        only entry comes later.
        """
        if self.is_empty:
            return journal_start > 0 and queue_offset != self.max_offset
        return queue_offset < self.first_queue_offset == self.max_offset - 1

    def _is_free_offset(self, queue_offset: int) -> bool:
        return queue_offset >= self.max_offset or (
            queue_offset >= self.first_queue_offset and self.entry(queue_offset).is_lost
        )

    def recover(self, journal_offset: int) -> None:
        """Find the end of the queue, and drop the entries of records at or after an offset of the journal.

        Entries that point before the offset were flushed and have no gap, so the search starts in the last file whose
        first entry does. Entries after it are erased, or they would be taken for valid ones once the journal has grown.
        """
        starts = self.files.file_starts
        first = next(
            (start for start in reversed(starts) if self._file_points_before(start, journal_offset)), self.files.start
        )
        self.files.end = self._find_entries_end(starts[(first - self.files.start) // self.files.file_size :])
        self.truncate_to_log_offset(journal_offset)

    def _file_points_before(self, entry_position: int, journal_offset: int) -> bool:
        try:
            entry = parse_entry(*self.files.locate(entry_position))
        except LayoutError:
            return False
        return entry is not None and entry.journal_offset < journal_offset


class JournalQueues(QueueTable[JournalQueue]):
    """All queues of a store in JMQ's layout."""

    def __init__(self, root: Path, file_size: int, mappings: MappedFiles) -> None:
        """Open the queues of the store at `root`; `recover` must set their ends."""
        super().__init__(root / FOLDER, file_size, "queue_file_size_bytes", mappings)
        self._refused: set[str] = set()

    def _make_queue(self, topic: str, queue_id: int, files: FileQueue) -> JournalQueue:
        return JournalQueue(topic, queue_id, files)

    @property
    def entry_count(self) -> int:
        """Sum of the end offsets of all queues, which is too small if a queue is missing or has lost entries."""
        return sum(queue.max_offset for queue in self)

    def dispatch_recovered(self, message: JournalMessage, *, reads_whole_journal: bool, journal_start: int) -> None:
        """Append a record that recovery has read from the journal to its queue.

        A journal may come from an untrusted source, and its topics become folders: a record with an invalid topic name
        or an impossible queue offset gets no entry.

        Raises:
            QueueGapError: see `JournalQueue.append_again`.
        """
        if not is_valid_topic(message.topic) or message.queue_offset > _MAX_QUEUE_OFFSET:
            if message.topic not in self._refused:
                _logger.warning(
                    "messages of %r/%d get no queue: invalid topic or offset", message.topic[:100], message.queue_id
                )
                self._refused.add(message.topic)
            return
        queue = self.find_or_create(message.topic, message.queue_id)
        try:
            queue.append_recovered(message, reads_whole_journal=reads_whole_journal, journal_start=journal_start)
        except LayoutError as error:
            _logger.warning("message %d of %s is not entered: %s", message.queue_offset, message.topic, error)

    def recover(self, journal_offset: int) -> None:
        """Find the ends of all queues, and remove the entries of records at or after an offset of the journal."""
        for queue in self:
            try:
                queue.recover(journal_offset)
            except StoreFilesError as error:
                _logger.warning("rebuilding %s/%d: %s", queue.topic, queue.queue_id, error)
                queue.truncate_to(queue.files.start)
