"""Writer of a RocketMQ store's queue files, by the rules of its broker."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.rocketmq import batch_queues, consume_queues
from commitlake.connectors.formats.rocketmq import queue_rules as record_rules
from commitlake.connectors.formats.rocketmq.consume_queues import ENTRY_DTYPE as ENTRY
from commitlake.connectors.log_format.queues import NewQueue, NewQueueFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.consumequeue import PRE_BLANK
from commitlake.schemas.layouts.segment_names import max_entry_number

_MAX_NUMBER = max_entry_number(ENTRY.itemsize)


class RocketmqQueueWriter:
    """Writer that rebuilds the files of one ConsumeQueue or BatchConsumeQueue.

    Attributes:
        lost: 0, because there are no entries for messages that the log lacks.
    """

    lost_count = 0

    def __init__(self, files: NewQueueFiles, queue: NewQueue) -> None:
        """Start with an empty queue.

        Args:
            queue: the queue to rebuild.
        """
        self._files = files
        self._is_batch = queue.is_batch
        self._closes_head = queue.closes_head
        self._entry_size = (batch_queues if queue.is_batch else consume_queues).ENTRY_DTYPE.itemsize
        self._file_size = queue.file_size
        self._state = np.zeros(record_rules.STATE_SIZE, np.int64)
        self._state[record_rules.PHYSICAL_END] = -1
        self._position = -1  # byte position of the next entry; -1 before the first

    @property
    def skipped_count(self) -> int:
        """Number of records without an entry, because their queue offsets are taken or impossible."""
        return int(self._state[record_rules.SKIPPED])

    @property
    def shifted_count(self) -> int:
        """Number of entries at a smaller queue offset than their records state, as earlier messages are missing."""
        return int(self._state[record_rules.SHIFTED])

    def append_entries(self, entries: Array, queue_offsets: Array | None, first_queue_offset: int) -> None:
        """Append entries to the queue's files, and skip those that a broker would not append.

        Args:
            entries: uint8[entries, bytes].
            queue_offsets: queue offsets of the entries.
            first_queue_offset: number of the first entry, if there are no numbers.
        """
        if self._is_batch:
            self._append_batch_entries(entries)
            return
        if self._position < 0:
            self._begin_queue(first_queue_offset if queue_offsets is None else int(queue_offsets[0]))
        if queue_offsets is None and first_queue_offset == self._state[record_rules.END]:
            last = entries[-1].view(ENTRY)[0]
            self._state[record_rules.END] += len(entries)
            self._state[record_rules.PHYSICAL_END] = int(last["physical_offset"]) + int(last["size"])
        else:
            following = np.arange(len(entries), dtype=np.int64)  # `arange` with a large start returns floats
            entries = self._choose_entries(
                entries, first_queue_offset + following if queue_offsets is None else queue_offsets
            )
        self._write_entries(entries)

    def _append_batch_entries(self, entries: Array) -> None:
        """Append entries to a BatchConsumeQueue, which begins at byte 0 and whose entries contain their offsets."""
        self._position = max(0, self._position)
        self._write_entries(entries)

    def _begin_queue(self, first_queue_offset: int) -> None:
        """Start the queue with its first entry, and write filler entries before it in the same file."""
        first_queue_offset = (
            first_queue_offset if 0 <= first_queue_offset <= _MAX_NUMBER and not self._closes_head else 0
        )
        self._state[record_rules.END] = first_queue_offset
        self._position = first_queue_offset * self._entry_size
        before = self._position % self._file_size // self._entry_size
        self._position -= before * self._entry_size
        if before:
            self._write_entries(np.ascontiguousarray(_filler_entries(before)).view(np.uint8).reshape(before, -1))

    def _choose_entries(self, entries: Array, queue_offsets: Array) -> Array:
        fields = entries.reshape(-1).view(ENTRY)
        kept = np.empty(len(entries), np.bool_)
        offsets, sizes = fields["physical_offset"].astype(np.int64), fields["size"].astype(np.int64)
        record_rules.choose_entries(queue_offsets.astype(np.int64), offsets, sizes, self._state, kept)
        chosen: Array = entries[kept]
        return chosen

    def _write_entries(self, entries: Array) -> None:
        data = np.ascontiguousarray(entries).reshape(-1).data
        self._files.write(self._position, data)
        self._position += len(data)


def _filler_entries(count: int) -> Array:
    """Return filler entries for the start of a queue that begins late."""
    return np.broadcast_to(np.array([tuple(PRE_BLANK)], ENTRY), count)
