"""Access to IndexFiles: header, geometry, entries by number."""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY, HEADER, Geometry, Header, geometry_of, parse_header
from commitlake.schemas.store_files import open_file

FOLDER = "index"
ENTRY_DTYPE = np.dtype(ENTRY.numpy_fields)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """A readable IndexFile.

    Attributes:
        path: path of the file.
        slots: number of slots, from the file's size.
        entries: number of entries that fit, from the file's size.
        header: the header as it was first read.
        last: number of the last entry; may be larger than the header says.
        first_offset: physical offset to which entry 1 points.
        last_offset: physical offset to which the last entry points.
        begin_timestamp: store time from which the entries' times are measured, ms.
        is_newest: True if no other file covers a later part of the log.
    """

    path: str
    slots: int
    entries: int
    header: Header
    last: int
    first_offset: int
    last_offset: int
    begin_timestamp: int
    is_newest: bool = False

    @property
    def geometry(self) -> Geometry:
        """The positions of slots and entries in the file."""
        return Geometry(self.slots, self.entries)

    @property
    def name(self) -> str:
        """The path of the file, relative to the store's folder."""
        return f"{FOLDER}/{Path(self.path).name}"

    @property
    def claimed(self) -> int:
        """The number of entries by the header."""
        return max(0, self.header.index_count - 1)


def open_part(path: Path) -> IndexPart | None:
    """Open an IndexFile and return its description, or None if it has no entry.

    Raises:
        LayoutError: if the file's size is that of no IndexFile.
        UnsafeFileError: if it is a link or no file.
    """
    descriptor = open_file(path)
    try:
        geometry = geometry_of(os.fstat(descriptor).st_size)
        header = parse_header(os.pread(descriptor, HEADER.size, 0))

        def entry(number: int) -> bytes:
            return _entry_at(descriptor, geometry, number)

        last = bisect_left(range(1, geometry.entries), True, key=lambda number: not any(entry(number)))
        claimed = header.index_count - 1
        if last < claimed < geometry.entries and any(entry(claimed)):
            last = claimed
        if last < 1:
            return None
        first_offset = ENTRY.unpack(entry(1))[1] if any(entry(1)) else header.begin_physical_offset
        last_offset = ENTRY.unpack(entry(last))[1]
    finally:
        os.close(descriptor)
    return IndexPart(
        str(path), geometry.slots, geometry.entries, header, last, first_offset, last_offset, header.begin_timestamp
    )


def _entry_at(descriptor: int, geometry: Geometry, number: int) -> bytes:
    """Return the bytes of an entry; zeros if the file has become shorter."""
    return os.pread(descriptor, ENTRY.size, geometry.entry_position(number)).ljust(ENTRY.size, b"\0")


def read_between(part: IndexPart, start: int, end: int) -> tuple[int, Array]:
    """Find the entries that point to a range of the log, by bisection.

    Returns:
        The number of the first entry, and the entries.
    """
    with os.fdopen(open_file(part.path), "rb", buffering=0) as file:
        descriptor = file.fileno()
        position = part.geometry.entry_position

        def offset_at(number: int) -> int:
            number = min(max(1, number), part.last)
            found: int = ENTRY.unpack(_entry_at(descriptor, part.geometry, number))[1]
            return found

        def offset_of(number: int) -> int:
            # The median of three neighbours, so that one damaged entry does not mislead the search.
            return sorted(map(offset_at, (number - 1, number, number + 1)))[1]

        numbers = range(1, part.last + 1)
        first = 1 + bisect_left(numbers, start, key=offset_of)
        stop = 1 + bisect_left(numbers, end, key=offset_of)
        data = os.pread(descriptor, max(0, stop - first) * ENTRY.size, position(first))
    return first, np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY.size)
