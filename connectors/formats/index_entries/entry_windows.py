"""Entries of an index file, read one window at a time, and the bad ranges between them.

Files are created at full size and filled with zeros, so unwritten entries at the end of an index are not damage.
Unwritten or invalid entries before a written one are damage. Invalid entries at the end are damage, too, unless only
the first of them is not zeros: a broker may be writing that entry, or was killed while it wrote it. Holes of a sparse
file, and bytes that were not shipped to a copy, are not read.

A broker may append while its files are read. So before unwritten entries are reported as damage, the first of them is
read again. If it is written now, the index has grown, and the read ends before that entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from commitlake.connectors.formats.index_entries.entry_damage import FIRST_BYTES, BadEntries, Reason
from commitlake.connectors.log_format.files import IndexedFile
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.index_files import find_nonzero_window

WINDOW_ENTRIES = 1 << 14
_ZEROS = "zeros"


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Range of an index file to read.

    Attributes:
        dtype: the dtype of an entry.
        start: position of the first entry, bytes.
        end: position after the last entry; the range has whole entries.
        file_end: position after the last entry of the file.
        written_end: position before which all entries must be written; 0 if unknown.
        is_sound: function of the first entry's position and the entries; returns a mask of valid entries.
        expected: an entry in words, for messages.
        are_zeros_sound: whether an entry of zeros can be valid.
    """

    dtype: np.dtype[Any]
    start: int
    end: int
    file_end: int
    written_end: int
    is_sound: Callable[[int, Array], Array]
    expected: str
    are_zeros_sound: bool = False


@dataclass(slots=True)
class EntryWindow:
    """Consecutive entries of an index file that were read at once, and the bad ranges before and among them.

    Attributes:
        start: position of the first entry, bytes.
        entries: all entries of the window.
        sound: mask of the valid entries; None if all are valid.
        bad: ranges without valid entries that end in or before this window.
    """

    start: int
    entries: Array
    sound: Array | None = None
    bad: list[BadEntries] = field(default_factory=list)


@dataclass(slots=True)
class _InvalidEntryRun:
    """Consecutive invalid entries, which become a bad range once a valid entry follows them.

    Attributes:
        start: position of the first one, bytes.
        first_bytes: up to 256 bytes from there.
        first_entry: bytes of the first entry.
        not_zero_end: position after the last entry that is not all zeros; 0 if all are zeros.
    """

    start: int
    first_bytes: bytes
    first_entry: bytes
    not_zero_end: int


def walk_entries(file: IndexedFile, entry_range: EntryRange) -> Iterator[EntryWindow]:
    """Yield the entries of a range of an index file, one window after the other.

    Args:
        file: the open file.
    """
    yield from _EntryWalk(file, entry_range).read_windows()


class _EntryWalk:
    def __init__(self, file: IndexedFile, wanted: EntryRange) -> None:
        self._file = file
        self._range = wanted
        self._size = wanted.dtype.itemsize
        self._unwritten: _InvalidEntryRun | None = None
        self._is_over, self._over_at = False, 0

    def read_windows(self) -> Iterator[EntryWindow]:
        """Yield the entries of the range, one window after the other."""
        position, end = self._range.start, self._range.end
        while position < end and not self._is_over:
            data_start = self._find_data_start(position)
            if data_start > position:
                # A hole has only zeros. It is treated as entries that are not written, without reading it.
                yield from self._windows_at_hole(position)
                position = data_start
                continue
            data = self._read_bytes(
                position, min(self._find_data_end(position), position + WINDOW_ENTRIES * self._size)
            )
            entries = np.frombuffer(data, self._range.dtype, len(data) // self._size)
            # Less than an entry is left, although the plan had more: the file was truncated.
            if not len(entries):
                break
            yield self._make_window(position, entries)
            position += len(entries) * self._size
        bad = [] if self._is_over else [*self._bad_ranges_at_end(position)]
        if bad:
            yield EntryWindow(position, np.empty(0, self._range.dtype), None, bad)

    def _windows_at_hole(self, position: int) -> Iterator[EntryWindow]:
        if not self._range.are_zeros_sound:
            self._extend_invalid_run(position, bytes(FIRST_BYTES), 0)
        elif self._unwritten is not None:
            yield EntryWindow(position, np.empty(0, self._range.dtype), None, [*self._flush_invalid_run(position)])

    def _find_data_start(self, position: int) -> int:
        """Return the start of the first entry after a position that is not in a hole, or the range's end."""
        found = self._file.next_data(position)
        if found is None:
            return self._range.end
        # Rounded down to an entry's start, because a file system reports holes in blocks.
        return min(position + (found - position) // self._size * self._size, self._range.end)

    def _find_data_end(self, position: int) -> int:
        """Return the end of the last entry that begins between a position and the next hole."""
        size = max(1, self._file.next_hole(position) - position)
        return min(position + -(-size // self._size) * self._size, self._range.end)

    def _read_bytes(self, start: int, end: int) -> Array:
        data = np.empty(end - start, np.uint8)
        return data[: self._file.read_into(data, start)]

    def _make_window(self, start: int, entries: Array) -> EntryWindow:
        sound = self._range.is_sound(start, entries)
        window = EntryWindow(start, entries)
        if sound.all():
            window.bad = [*self._flush_invalid_run(start)]
        else:
            window.sound = sound
            window.bad = [*self._find_bad_ranges(start, entries, sound)]
        if self._is_over:
            kept = (self._over_at - start) // self._size if self._over_at > start else 0
            window.entries, window.sound = entries[:kept], sound[:kept]
        return window

    def _find_bad_ranges(self, start: int, entries: Array, sound_mask: Array) -> Iterator[BadEntries]:
        edges = np.flatnonzero(np.diff(sound_mask, prepend=True, append=True))
        raw = entries.view(np.uint8)
        if sound_mask[0]:
            # The run of invalid entries from earlier windows ends at this window's first entry, which is sound.
            yield from self._flush_invalid_run(start)
        for first, stop in edges.reshape(-1, 2).tolist():
            if self._is_over:
                return
            place, rest = start + first * self._size, raw[first * self._size : stop * self._size]
            # The end of the last entry with data: what follows it may just not be written yet.
            not_zero = np.flatnonzero(rest)
            not_zero_end = place + (int(not_zero[-1]) // self._size + 1) * self._size if len(not_zero) else 0
            self._extend_invalid_run(place, raw[first * self._size :][:FIRST_BYTES].tobytes(), not_zero_end)
            if stop < len(entries):
                yield from self._flush_invalid_run(start + stop * self._size)

    def _extend_invalid_run(self, start: int, first_bytes: bytes, nonzero_end: int) -> None:
        if self._unwritten is None:
            self._unwritten = _InvalidEntryRun(start, first_bytes, first_bytes[: self._size], 0)
        self._unwritten.not_zero_end = max(self._unwritten.not_zero_end, nonzero_end)

    def _flush_invalid_run(self, end: int) -> Iterator[BadEntries]:
        """Yield the pending run of invalid entries as a bad range, unless the broker has written its entries since."""
        unwritten, self._unwritten = self._unwritten, None
        if unwritten is None:
            return
        # Read again before it is called damage, because a broker may have written the entry since.
        if not self._range.are_zeros_sound and self._is_written_meanwhile(unwritten.start):
            self._is_over, self._over_at = True, unwritten.start
            return
        found = unwritten.first_entry.hex(" ") if any(unwritten.first_entry) else _ZEROS
        yield BadEntries(
            unwritten.start,
            end,
            Reason.ENTRY,
            self._range.expected,
            found,
            unwritten.first_bytes[: end - unwritten.start],
        )

    def _is_written_meanwhile(self, start: int) -> bool:
        """Read an entry again, and return whether the broker has written it since the first read."""
        data = self._read_bytes(start, start + self._size)
        return len(data) == self._size and bool(self._range.is_sound(start, data.view(self._range.dtype)).all())

    def _bad_ranges_at_end(self, position: int) -> Iterator[BadEntries]:
        """Yield the bad ranges between the last byte that was read and the end of the range.

        Args:
            position: position after the last byte that was read.
        """
        end = self._range.end
        if position < end:
            if self._unwritten is not None:
                yield from self._flush_invalid_run(position)
            expected, found = f"{end} bytes", f"{position}, or a few more: the file was truncated just now"
            yield BadEntries(position, end, Reason.CUT, expected, found)
        elif self._unwritten is not None:
            yield from self._explain_invalid_run_at_end(self._unwritten)

    def _explain_invalid_run_at_end(self, invalid_run: _InvalidEntryRun) -> Iterator[BadEntries]:
        needed = self._range.written_end
        if self._has_data(self._range.end, self._range.file_end):
            needed = self._range.end
        # One entry alone may be under way; anything after it is damage.
        elif invalid_run.not_zero_end > invalid_run.start + self._size:
            needed = max(needed, invalid_run.not_zero_end)
        if needed > invalid_run.start:
            yield from self._flush_invalid_run(min(needed, self._range.end))

    def _has_data(self, start: int, end: int) -> bool:
        """Return whether a part of the file contains a byte that is not zero."""
        return find_nonzero_window(self._file, start, end) is not None
