"""Writer of a JMQ store's queue files, by the rules by which its broker builds them from the journal.

Entry number i is at byte 22 * i. For messages that the journal lacks, there are entries of size 0, but no more than the
journal had room for. A later record with such a number replaces the entry. A record gets no entry if another record has
its number, or if its number is too large. If the journal's oldest files are deleted, a queue's first file begins with
the queue's first message. Source: broker_lite.stores.jmq.queues.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from commitlake.connectors.formats.jmq.queue_entries import ENTRY_DTYPE, is_lost, make_entries
from commitlake.connectors.log_format.queues import NewQueueFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.jmq.journal import MIN_RECORD_SIZE
from commitlake.schemas.layouts.segments import max_entry_number

_SIZE = ENTRY_DTYPE.itemsize
_MAX_NUMBER = max_entry_number(_SIZE)
_AT_ONCE = 1 << 16


class JournalQueueWriter:
    """Writer of one queue; see `connectors.log_format.queues.QueueWriter`.

    Attributes:
        skipped: records that got no entry.
        lost: entries that stand for messages which the journal lacks.
        shifted: 0, because every entry is at its number.
    """

    shifted = 0

    def __init__(self, files: NewQueueFiles, journal_start: int) -> None:
        """Start with an empty queue.

        Args:
            journal_start: offset of the first byte of the journal.
        """
        self._files = files
        self.skipped = 0
        self.lost = 0
        self._journal_start = journal_start
        self._first = self._end = 0  # queue offsets
        self._last_offset = journal_start

    def append_entries(self, entries: Array, numbers: Array | None, first_number: int) -> None:
        """Append entries.

        Args:
            entries: uint8[entries, bytes].
            numbers: queue offsets of the entries.
            first_number: number of the first entry, if there are no numbers.
        """
        if numbers is None:
            self._add_consecutive(first_number, entries)
            return
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        for begin, end in pairwise([0, *breaks.tolist(), len(numbers)]):
            self._add_consecutive(int(numbers[begin]), entries[begin:end])

    def _add_consecutive(self, first_number: int, entries: Array) -> None:
        """Append the entries of records with consecutive queue offsets."""
        begin, end = max(0, -first_number), min(len(entries), _MAX_NUMBER + 1 - first_number)
        self.skipped += len(entries) - max(0, end - begin)
        if begin >= end:
            return
        first_number, entries = first_number + begin, entries[begin:end]
        if self._must_restart_at(first_number):
            self.skipped += self._end - self._first
            self._files.clear()
            self._files.start = first_number * _SIZE
            self._first = self._end = first_number
            self.lost = 0
        known = max(0, min(len(entries), self._end - first_number))
        self._replace_placeholders(first_number, entries[:known])
        first_number, entries = first_number + known, entries[known:]
        taken = self._find_first_possible(first_number, entries)
        self.skipped += taken
        if taken < len(entries):
            self._append_after_gap(first_number + taken, entries[taken:])

    def _must_restart_at(self, queue_offset: int) -> bool:
        """Return True if the queue, with at most one entry so far, must start again at this queue offset."""
        if self._end == self._first:
            return self._journal_start > 0 and queue_offset != self._end
        return queue_offset < self._first == self._end - 1

    def _find_first_possible(self, first_number: int, entries: Array) -> int:
        """Return the index of the first record before which the journal has room for all messages missing so far."""
        if first_number == self._end or not len(entries):
            return 0
        offsets = entries.reshape(-1).view(ENTRY_DTYPE)["physical_offset"].astype(np.int64)
        missing = first_number - self._end + np.arange(len(entries))
        possible = missing <= np.maximum(0, offsets - self._last_offset) // MIN_RECORD_SIZE
        return int(np.argmax(possible)) if possible.any() else len(entries)

    def _append_after_gap(self, first_number: int, entries: Array) -> None:
        fields = entries.reshape(-1).view(ENTRY_DTYPE)
        missing, offset = first_number - self._end, int(fields["physical_offset"][0])
        for begin in range(0, missing, _AT_ONCE):
            count = min(_AT_ONCE, missing - begin)
            places = np.full(count, offset, np.int64)
            self._write_entries(self._end + begin, make_entries(places, np.zeros(count, np.int32)).view(np.uint8))
        self.lost += missing
        self._write_entries(first_number, entries)
        self._end = first_number + len(entries)
        self._last_offset = int(fields["physical_offset"][-1])

    def _replace_placeholders(self, first_number: int, entries: Array) -> None:
        """Replace placeholders of lost messages by entries of records with the same queue offsets."""
        begin = max(0, min(len(entries), self._first - first_number))
        self.skipped += begin
        for at in range(begin, len(entries), _AT_ONCE):
            chosen = entries[at : min(at + _AT_ONCE, len(entries))]
            known = np.frombuffer(self._files.read((first_number + at) * _SIZE, len(chosen) * _SIZE), ENTRY_DTYPE)
            places = np.flatnonzero(is_lost(known))
            for place in places.tolist():
                self._write_entries(first_number + at + place, chosen[place])
            self.lost -= len(places)
            self.skipped += len(chosen) - len(places)

    def _write_entries(self, first_number: int, entries: Array) -> None:
        self._files.write(first_number * _SIZE, np.ascontiguousarray(entries).reshape(-1).data)
