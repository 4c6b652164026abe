"""Writer of a JMQ store's queue files, by the rules by which its broker builds them from the journal.

Entry number i is at byte 22 * i. For messages that the journal lacks, there are entries of size 0, but no more than the
journal had room for. A later record with such a number replaces the entry. A record gets no entry if another record has
its number, or if its number is too large. If the journal's oldest files are deleted, a queue's first file begins with
the queue's first message. Source: broker_lite.stores.jmq.queues.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from commitlake.connectors.formats.jmq.queue_entries import ENTRY_DTYPE, lost_entry_mask, make_entries
from commitlake.connectors.log_format.queues import NewQueueFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.jmq.journal import MIN_RECORD_SIZE
from commitlake.schemas.layouts.segment_names import max_entry_number

_SIZE = ENTRY_DTYPE.itemsize
_MAX_NUMBER = max_entry_number(_SIZE)
_AT_ONCE = 1 << 16


class JournalQueueWriter:
    """Writer that rebuilds the files of one JMQ queue.

    Attributes:
        skipped_count: records that got no entry.
        lost_count: entries that stand for messages which the journal lacks.
        shifted_count: 0, because every entry is at its number.
    """

    shifted_count = 0

    def __init__(self, files: NewQueueFiles, journal_start: int) -> None:
        """Start with an empty queue.

        Args:
            journal_start: offset of the first byte of the journal.
        """
        self._files = files
        self.skipped_count = 0
        self.lost_count = 0
        self._journal_start = journal_start
        self._first = self._end = 0  # queue offsets
        self._last_offset = journal_start

    def append_entries(self, entries: Array, queue_offsets: Array | None, first_queue_offset: int) -> None:
        """Write entries at their queue offsets; placeholder entries for lost messages fill the offsets between them.

        Args:
            entries: uint8[entries, bytes].
            queue_offsets: queue offsets of the entries.
            first_queue_offset: number of the first entry, if there are no numbers.
        """
        if queue_offsets is None:
            self._append_consecutive(first_queue_offset, entries)
            return
        breaks = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
        for begin, end in pairwise([0, *breaks.tolist(), len(queue_offsets)]):
            self._append_consecutive(int(queue_offsets[begin]), entries[begin:end])

    def _append_consecutive(self, first_queue_offset: int, entries: Array) -> None:
        """Append the entries of records with consecutive queue offsets."""
        begin, end = max(0, -first_queue_offset), min(len(entries), _MAX_NUMBER + 1 - first_queue_offset)
        self.skipped_count += len(entries) - max(0, end - begin)
        if begin >= end:
            return
        first_queue_offset, entries = first_queue_offset + begin, entries[begin:end]
        if self._must_restart_at(first_queue_offset):
            self.skipped_count += self._end - self._first
            self._files.clear()
            self._files.start = first_queue_offset * _SIZE
            self._first = self._end = first_queue_offset
            self.lost_count = 0
        known = max(0, min(len(entries), self._end - first_queue_offset))
        self._replace_placeholders(first_queue_offset, entries[:known])
        first_queue_offset, entries = first_queue_offset + known, entries[known:]
        taken = self._find_first_possible_record(first_queue_offset, entries)
        self.skipped_count += taken
        if taken < len(entries):
            self._append_after_gap(first_queue_offset + taken, entries[taken:])

    def _must_restart_at(self, queue_offset: int) -> bool:
        """Return True if a queue with no entry, or with only one, must begin at this queue offset instead."""
        if self._end == self._first:
            return self._journal_start > 0 and queue_offset != self._end
        return queue_offset < self._first == self._end - 1

    def _find_first_possible_record(self, first_queue_offset: int, entries: Array) -> int:
        """Return the index of the first record with enough journal space before it for all missing messages."""
        if first_queue_offset == self._end or not len(entries):
            return 0
        offsets = entries.reshape(-1).view(ENTRY_DTYPE)["physical_offset"].astype(np.int64)
        missing = first_queue_offset - self._end + np.arange(len(entries))
        possible = missing <= np.maximum(0, offsets - self._last_offset) // MIN_RECORD_SIZE
        return int(np.argmax(possible)) if possible.any() else len(entries)

    def _append_after_gap(self, first_queue_offset: int, entries: Array) -> None:
        fields = entries.reshape(-1).view(ENTRY_DTYPE)
        missing, offset = first_queue_offset - self._end, int(fields["physical_offset"][0])
        for begin in range(0, missing, _AT_ONCE):
            count = min(_AT_ONCE, missing - begin)
            places = np.full(count, offset, np.int64)
            self._write_entries(self._end + begin, make_entries(places, np.zeros(count, np.int32)).view(np.uint8))
        self.lost_count += missing
        self._write_entries(first_queue_offset, entries)
        self._end = first_queue_offset + len(entries)
        self._last_offset = int(fields["physical_offset"][-1])

    def _replace_placeholders(self, first_queue_offset: int, entries: Array) -> None:
        """Replace placeholder entries of lost messages by the entries of records with the same queue offsets."""
        begin = max(0, min(len(entries), self._first - first_queue_offset))
        self.skipped_count += begin
        for at in range(begin, len(entries), _AT_ONCE):
            chosen = entries[at : min(at + _AT_ONCE, len(entries))]
            known = np.frombuffer(self._files.read((first_queue_offset + at) * _SIZE, len(chosen) * _SIZE), ENTRY_DTYPE)
            places = np.flatnonzero(lost_entry_mask(known))
            for place in places.tolist():
                self._write_entries(first_queue_offset + at + place, chosen[place])
            self.lost_count -= len(places)
            self.skipped_count += len(chosen) - len(places)

    def _write_entries(self, first_queue_offset: int, entries: Array) -> None:
        self._files.write(first_queue_offset * _SIZE, np.ascontiguousarray(entries).reshape(-1).data)
