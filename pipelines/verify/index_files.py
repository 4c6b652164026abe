"""IndexFiles as they lie there: header, geometry, entries by number."""

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
    """One IndexFile that can be read.

    Attributes:
        path: the file.
        slots: from its size.
        entries: likewise.
        header: as it was first read.
        last: number of the last entry; the header may be behind it.
        first_offset: physical offset that entry 1 leads to.
        last_offset: that the last entry leads to.
        begin_timestamp: store time that entries' times are measured from, ms.
        is_newest: no other file is about a later part of the log.
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
        """Where things stand in the file."""
        return Geometry(self.slots, self.entries)

    @property
    def name(self) -> str:
        """The file, from the store's folder on."""
        return f"{FOLDER}/{Path(self.path).name}"

    @property
    def claimed(self) -> int:
        """Entries that the header counts."""
        return max(0, self.header.index_count - 1)


def open_part(path: Path) -> IndexPart | None:
    """What an IndexFile is about, or None where it has no entry.

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
    """The bytes of an entry; zeros where the file was cut meanwhile."""
    return os.pread(descriptor, ENTRY.size, geometry.entry_position(number)).ljust(ENTRY.size, b"\0")


def read_between(part: IndexPart, start: int, end: int) -> tuple[int, Array]:
    """The entries that lead to a range of the log, by halving: the first one's number, and all of them."""
    with os.fdopen(open_file(part.path), "rb", buffering=0) as file:
        descriptor = file.fileno()
        position = part.geometry.entry_position

        def offset_at(number: int) -> int:
            number = min(max(1, number), part.last)
            found: int = ENTRY.unpack(_entry_at(descriptor, part.geometry, number))[1]
            return found

        def offset_of(number: int) -> int:
            # Of three neighbours the middle one: a damaged entry leads nobody astray.
            return sorted(map(offset_at, (number - 1, number, number + 1)))[1]

        numbers = range(1, part.last + 1)
        first = 1 + bisect_left(numbers, start, key=offset_of)
        behind = 1 + bisect_left(numbers, end, key=offset_of)
        data = os.pread(descriptor, max(0, behind - first) * ENTRY.size, position(first))
    return first, np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY.size)
