"""BatchConsumeQueues: queues of topics whose records may contain several messages (`queue.type=BatchCQ`, 5.x).

`batchconsumequeue/<topic>/<queueId>/`. There is one entry per record, however many messages it contains, so a message
is found by a binary search for the last entry that begins at or before it. Like a ConsumeQueue it is derived from the
log. Source: org.apache.rocketmq.store.queue.BatchConsumeQueue (5.5.0).

If neither topics.json nor queue folders show a topic's type, its queues are created as ConsumeQueues while the log is
read, and `BatchTopics` then decides by the offsets of the records.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from commitlake.broker_lite.stores.engine.file_queue import FileQueue
from commitlake.broker_lite.stores.engine.log_writer import QueueGapError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFiles
from commitlake.broker_lite.stores.engine.queue_table import QueueTable
from commitlake.broker_lite.stores.engine.record_log import MessageLog
from commitlake.broker_lite.stores.rocketmq.commitlog import CommitLog
from commitlake.broker_lite.stores.rocketmq.consume_queue import CommitLogQueue, QueueUnit
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import (
    ENTRY,
    NO_COMPACTED_OFFSET,
    BatchEvidence,
    BatchQueueEntry,
    parse_entry,
)
from commitlake.schemas.layouts.rocketmq.consumequeue import ConsumeQueueEntry as SimpleEntry
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET

FOLDER = "batchconsumequeue"
_pack_entry = ENTRY.struct.pack_into
_logger = logging.getLogger(__name__)


class BatchConsumeQueue(CommitLogQueue):
    """One BatchConsumeQueue, a queue in which each entry points to a record of one or several messages.

    Attributes:
        max_offset: queue offset of the next message.
    """

    entry_size = ENTRY.size

    def __init__(self, topic: str, queue_id: int, files: FileQueue) -> None:
        """Load the entries of the files, up to the first invalid one."""
        self.max_offset = 0
        super().__init__(topic, queue_id, files)

    def _read_entry(self, entry_number: int) -> BatchQueueEntry:
        return parse_entry(*self.files.locate(entry_number * ENTRY.size))

    def min_offset(self, min_physical_offset: int) -> int:
        """Return the queue offset of the first message that is still in the log, or `max_offset` if there is none."""
        place = self.first_entry_at_or_after(min_physical_offset)
        return self._read_entry(place).message_base_offset if place < self.entry_range.stop else self.max_offset

    def read_queue_units(self, queue_offset: int) -> Iterator[QueueUnit]:
        """Yield the records of a queue, from the one that contains a queue offset, or else the next one."""
        places = self.entry_range
        after = bisect_right(places, queue_offset, key=lambda place: self._read_entry(place).message_base_offset)
        first = max(places.start, places.start + after - 1)
        for place in range(first, places.stop):
            physical_offset, size, tags_code, _, base, count, _, _ = self._read_entry(place)
            if base + count > queue_offset:
                yield QueueUnit(SimpleEntry(physical_offset, size, tags_code), base, base + count)

    def queue_offset_by_time(self, timestamp_ms: int, log: MessageLog[Any]) -> int:
        """Return the queue offset of the first message stored at or after a time, or `max_offset` if there is none."""
        places = self.entry_range
        after = bisect_left(places, timestamp_ms, key=lambda place: self._read_entry(place).store_timestamp)
        found = self._read_entry(places[after]).message_base_offset if after < len(places) else self.max_offset
        # Entries of expired messages are not deleted before the others in their file.
        return max(found, self.min_offset(log.start))

    def append(
        self, physical_offset: int, size: int, tags_code: int, store_timestamp: int, message_count: int = 1
    ) -> None:
        """Append an entry for a record that contains the next messages of the queue."""
        self._append_entry(
            BatchQueueEntry(physical_offset, size, tags_code, store_timestamp, self.max_offset, message_count)
        )

    def append_all(self, entries: Sequence[tuple[int, int, int]], store_timestamp: int) -> None:
        """Append an entry for each (physical offset, size, tag hash) tuple, whose record contains a single message."""
        for entry in entries:
            self.append(*entry, store_timestamp)

    def _append_entry(self, entry: BatchQueueEntry) -> None:
        memory, position = self.files.locate_end()
        _pack_entry(memory, position, *entry)
        self.files.end += ENTRY.size
        self._set_last_entry(entry)

    def _set_last_entry(self, entry: BatchQueueEntry) -> None:
        self.last_record = entry.physical_offset
        self.max_physical_offset = entry.physical_offset + entry.size
        self.max_offset = entry.message_base_offset + entry.batch_size

    def append_recovered(self, dispatch: Dispatch, *, reads_whole_log: bool) -> None:
        """Append the entry of a record that recovery has read from the log, unless the queue already has it.

        Raises:
            QueueGapError: if the queue ends before the record's first message, and the missing records may be in the
            part of the log that was not read.
        """
        # Recovery begins before the end of the queues, so most records are known.
        if dispatch.physical_offset <= self.last_record or dispatch.base_offset < self.max_offset:
            return
        if dispatch.base_offset > MAX_QUEUE_OFFSET:
            found = f"{self.name}: expected a message up to {MAX_QUEUE_OFFSET}"
            _logger.warning("%s, found %d, which is not entered", found, dispatch.base_offset)
            return
        if dispatch.base_offset > self.max_offset and not (self.is_empty and reads_whole_log):
            found = f"{self.name}: expected message {self.max_offset}, found {dispatch.base_offset}"
            if not reads_whole_log:
                raise QueueGapError(found)
            _logger.warning("%s", found)  # messages of this queue are missing in the log itself
        self._append_entry(
            BatchQueueEntry(
                dispatch.physical_offset,
                dispatch.size,
                dispatch.tags_code,
                dispatch.store_timestamp,
                dispatch.base_offset,
                dispatch.message_count,
                NO_COMPACTED_OFFSET,
            )
        )

    def drop_invalid_tail(self, log: CommitLog) -> None:
        """Remove entries at the end that point to no valid record, because a crash may leave garbage in the files."""
        while not self.is_empty and self.last_record >= log.start:
            message = log.message_at(self.last_record)
            if message is not None and self.last_record + message.size == self.max_physical_offset:
                return
            self.truncate_to(self.files.end - ENTRY.size)

    def truncate_to(self, byte_position: int) -> None:
        """Truncate the queue to a byte position, and erase the entries after it."""
        super().truncate_to(byte_position)
        if self.is_empty:
            self.last_record = self.max_physical_offset = -1
            self.max_offset = 0
        else:
            self._set_last_entry(self._read_entry(self.entry_range[-1]))

    def clear(self) -> None:
        """Remove all entries; the queue starts again."""
        super().clear()
        self.max_offset = 0

    def _entry_points_before(self, entry_number: int, log_offset: int) -> bool:
        return self._read_entry(entry_number).physical_offset < log_offset

    @staticmethod
    def _count_valid_entries(data: bytes) -> int:
        count = 0
        for physical_offset, size, _, _, base, batch_size, _, _ in ENTRY.struct.iter_unpack(data):
            if physical_offset < 0 or size <= 0 or base < 0 or batch_size <= 0:
                break
            count += 1
        return count


class BatchConsumeQueues(QueueTable[BatchConsumeQueue]):
    """All BatchConsumeQueues of a store."""

    def __init__(self, root: Path, file_size: int, mappings: MappedFiles) -> None:
        """Open the queues of the store at `root`."""
        super().__init__(root / FOLDER, file_size, "batch_queue_file_size_bytes", mappings)

    def _make_queue(self, topic: str, queue_id: int, files: FileQueue) -> BatchConsumeQueue:
        return BatchConsumeQueue(topic, queue_id, files)


class BatchTopics:
    """Collector of evidence, from the records of a log, for which topics have BatchConsumeQueues.

    A single record with the flag of an inner batch, which any producer can send to a topic of single messages, decides
    nothing; see `schemas.layouts.rocketmq.batchconsumequeue`.
    """

    def __init__(self) -> None:
        self._evidence: dict[str, BatchEvidence] = {}
        self._records: dict[str, int] = {}
        self._last: dict[tuple[str, int], Dispatch] = {}
        self._queue_counts: dict[str, int] = {}

    def add_record(self, record: Dispatch) -> None:
        """Add the evidence of a record; the records of a queue must be added in the order of the log."""
        topic, queue = record.topic, (record.topic, record.queue_id)
        last = self._last.get(queue)
        steps = 0
        if last is not None and last.is_inner_batch and last.message_count > 1:
            step = record.queue_offset - last.queue_offset
            steps = int(step == last.message_count) - int(step == 1)
        added = BatchEvidence(int(record.is_inner_batch), steps)
        self._evidence[topic] = self._evidence.get(topic, BatchEvidence()).joined(added)
        self._records[topic] = self._records.get(topic, 0) + 1
        self._queue_counts[topic] = max(self._queue_counts.get(topic, 0), record.queue_id + 1)
        self._last[queue] = record

    def detect_queue_types(self) -> dict[str, tuple[bool, int]]:
        """Return, for each topic, whether it has BatchConsumeQueues, and its number of queues."""
        return {
            topic: (evidence.shows_batch_queues(self._records[topic]), self._queue_counts[topic])
            for topic, evidence in self._evidence.items()
        }
