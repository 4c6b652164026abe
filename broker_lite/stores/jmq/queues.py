"""The queues: for every topic and queue, where its messages stand in the journal.

`queue/<topic>/<queueId>/`. A queue is an index: what it says follows from the journal, and it is written from there
again where there is any doubt. Entry number i stands at byte 22 * i, and a file is named by the position of its first
entry: a queue whose first known message is not number 0 begins with a file of that name. The entry of a message that
the journal has lost has the size 0.
"""

from __future__ import annotations

import logging
import zlib
from pathlib import Path

from commitlake.broker_lite.stores.engine.entry_queue import NumberedQueue
from commitlake.broker_lite.stores.engine.errors import StoreFilesError
from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.mapped_file import Mappings
from commitlake.broker_lite.stores.engine.queue_table import QueueTable
from commitlake.broker_lite.stores.engine.recovery import QueueGapError
from commitlake.broker_lite.stores.engine.topic_names import is_valid_topic
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.jmq.journal import MIN_RECORD_SIZE, JournalMessage
from commitlake.schemas.layouts.jmq.queue import CRC_POSITION, ENTRY, FOLDER, Entry, count_valid, parse_entry
from commitlake.schemas.layouts.segments import max_entry_number

_MAX_QUEUE_OFFSET = max_entry_number(ENTRY.size)
_pack_entry = ENTRY.struct.pack_into
_logger = logging.getLogger(__name__)


class JournalQueue(NumberedQueue):
    """The entries of one queue; `recover` must tell where it ends."""

    entry_size = ENTRY.size

    def log_offset_at(self, number: int) -> int:
        """Offset of the record that an entry leads to."""
        return self.entry(number).journal_offset

    def _leads_before(self, place: int, log_offset: int) -> bool:
        return self.entry(place).journal_offset < log_offset

    @staticmethod
    def _count_valid(data: bytes) -> int:
        return count_valid(data)

    def entry(self, number: int) -> Entry:
        """The entry with a queue offset from `first_number` to `max_offset` - 1.

        Raises:
            StoreFilesError: if it is damaged.
        """
        try:
            entry = parse_entry(*self.files.locate(number * ENTRY.size))
            found = "expected an entry, found zeros"
        except LayoutError as error:
            entry, found = None, str(error)
        if entry is None:
            hint = f"remove {self.files.folder} and open the store anew, which builds it again"
            raise StoreFilesError(f"message {number} of {self.name}: {found}; {hint}")
        return entry

    def append(self, journal_offset: int, size: int) -> None:
        """Append the next entry."""
        self.files.prepare(ENTRY.size)
        self._write(self.files.end, journal_offset, size)
        self.files.end += ENTRY.size

    def _write(self, at: int, journal_offset: int, size: int) -> None:
        memory, position = self.files.locate(at)
        _pack_entry(memory, position, journal_offset, size, 0, 0)
        crc = zlib.crc32(memory[position : position + CRC_POSITION])
        memory[position + CRC_POSITION : position + ENTRY.size] = crc.to_bytes(8, "big")

    def append_again(self, message: JournalMessage, *, from_journal_start: bool, journal_start: int) -> None:
        """Append the entry of a record that was read from the journal.

        Nothing but its place and its body vouches for a record: one whose queue or number was damaged must not keep
        those behind it out. So numbers may be missing, as many as there was room for; they count as lost until a record
        with that number comes.

        Args:
            message: the record.
            from_journal_start: whether everything before it that the journal has was read, too.
            journal_start: where the journal begins.

        Raises:
            QueueGapError: if the queue ends before the record's queue offset, and the records between may be in the
                part of the journal that was not read.
            LayoutError: if the record has a number that it cannot have.
        """
        number, offset = message.queue_offset, message.journal_offset
        if number > self.max_offset and not from_journal_start:
            raise QueueGapError(f"{self.name}: expected message {self.max_offset}, found {number}")
        if self._must_begin_at(number, journal_start):
            self.files.delete()
            self.files.begin_at(number * ENTRY.size, exactly=True)
        missing = number - self.max_offset
        behind = journal_start if self.is_empty else self.entry(self.max_offset - 1).journal_offset
        if missing > (most := max(0, offset - behind) // MIN_RECORD_SIZE) or not self._is_free(number):
            expected = f"a message of {self.name} that is not there, from {self.first_number} to"
            raise LayoutError("queue_offset", offset, f"{expected} {self.max_offset + most}", f"{number}")
        if missing < 0:
            self._write(number * ENTRY.size, offset, message.size)
            return
        if missing:
            _logger.warning("%s: %d messages from %d on are not in the journal", self.name, missing, self.max_offset)
        for _ in range(missing):
            self.append(offset, 0)
        self.append(offset, message.size)

    def _must_begin_at(self, number: int, journal_start: int) -> bool:
        """Whether this is the first message that is left; not so where only one other has said that it is."""
        if self.is_empty:
            return journal_start > 0 and number != self.max_offset
        return number < self.first_number == self.max_offset - 1

    def _is_free(self, number: int) -> bool:
        return number >= self.max_offset or (number >= self.first_number and self.entry(number).is_lost)

    def recover(self, journal_offset: int) -> None:
        """Find the end, and drop the entries of records at or behind an offset of the journal.

        What leads before it was on the disk, and has no hole: the file to begin with is the last one whose first entry
        does. Entries behind it are erased: once the journal has gone on, they would pass for entries again.
        """
        starts = self.files.file_starts
        first = next(
            (start for start in reversed(starts) if self._file_leads_before(start, journal_offset)), self.files.start
        )
        self.files.end = self._end_of_entries(starts[(first - self.files.start) // self.files.file_size :])
        self.truncate_physically(journal_offset)

    def _file_leads_before(self, position: int, journal_offset: int) -> bool:
        try:
            entry = parse_entry(*self.files.locate(position))
        except LayoutError:
            return False
        return entry is not None and entry.journal_offset < journal_offset


class JournalQueues(QueueTable[JournalQueue]):
    """All queues of a store."""

    def __init__(self, root: Path, file_size: int, mappings: Mappings) -> None:
        """Open the queues that the store at `root` has, see `QueueTable`; `recover` must tell where they end."""
        super().__init__(root / FOLDER, file_size, "queue_file_size_bytes", mappings)
        self._refused: set[str] = set()

    def _queue(self, topic: str, queue_id: int, files: FileQueue) -> JournalQueue:
        return JournalQueue(topic, queue_id, files)

    @property
    def entries(self) -> int:
        """The next queue offsets of all queues, added up: a queue that is missing, or has lost something, shows."""
        return sum(queue.max_offset for queue in self)

    def dispatch_again(self, message: JournalMessage, *, from_journal_start: bool, journal_start: int) -> None:
        """Append a record that was read from the journal to its queue.

        A journal may come from anywhere, and its topics become folders: a record with a name that this store would not
        accept gets no entry, nor one with a number that cannot be.

        Raises:
            QueueGapError: see `JournalQueue.append_again`.
        """
        if not is_valid_topic(message.topic) or message.queue_offset > _MAX_QUEUE_OFFSET:
            if message.topic not in self._refused:
                _logger.warning("no queue is kept for %r/%d", message.topic[:100], message.queue_id)
                self._refused.add(message.topic)
            return
        queue = self.find_or_create(message.topic, message.queue_id)
        try:
            queue.append_again(message, from_journal_start=from_journal_start, journal_start=journal_start)
        except LayoutError as error:
            _logger.warning("message %d of %s gets no entry: %s", message.queue_offset, message.topic, error)

    def recover(self, journal_offset: int) -> None:
        """Find the ends of all queues, before an offset of the journal."""
        for queue in self:
            try:
                queue.recover(journal_offset)
            except StoreFilesError as error:
                _logger.warning("%s/%d is built anew: %s", queue.topic, queue.queue_id, error)
                queue.truncate_to(queue.files.start)
