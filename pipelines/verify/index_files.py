"""Access to IndexFiles: header, geometry, entries by number."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np

from commitlake.connectors.log_format.files import SegmentFile, StoreFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.index_files import read_range
from commitlake.schemas.layouts.rocketmq.indexfile import ENTRY, HEADER, Geometry, Header, geometry_of, parse_header

FOLDER = "index"
ENTRY_DTYPE = np.dtype(ENTRY.numpy_fields)


@dataclass(frozen=True, slots=True)
class IndexPart:
    """An IndexFile: its header, its size, and the range of the log that its entries cover.

    Attributes:
        name: path of the file, relative to the store's folder.
        slots: number of slots, from the file's size.
        entries: number of entries that fit, from the file's size.
        header: the header as it was first read.
        last: number of the last entry; may be larger than the header says.
        first_offset: physical offset to which entry 1 points.
        last_offset: physical offset to which the last entry points.
        begin_timestamp: store time from which the entries' times are measured, ms.
        is_newest: True if the broker may still write to it: it is the newest one, and not a complete one in a copy.
    """

    name: str
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
        """The file's layout: its numbers of slots and entries."""
        return Geometry(self.slots, self.entries)

    @property
    def claimed_entries(self) -> int:
        """Number of entries that the file's header states."""
        return max(0, self.header.index_count - 1)


def open_index_part(files: StoreFiles, name: str) -> IndexPart | None:
    """Open an IndexFile and return its description; None if it has no entry.

    Args:
        name: path of the file.

    Raises:
        LayoutError: if the file's size is that of no IndexFile.
        UnsafeFileError: if it is a link or no file.
    """
    file = files.open(name)
    try:
        geometry = geometry_of(file.size())
        header = parse_header(read_range(file, 0, HEADER.size).tobytes())

        def read_index_entry(number: int) -> bytes:
            return _entries_at(file, geometry, number, 1).tobytes()

        claimed = header.index_count - 1
        if claimed == geometry.entries - 1 and any(read_index_entry(claimed)):
            last = claimed  # it is full
        else:
            last = bisect_left(range(1, geometry.entries), True, key=lambda number: not any(read_index_entry(number)))
            if last < claimed < geometry.entries and any(read_index_entry(claimed)):
                last = claimed
        if last < 1:
            return None
        first_offset = (
            ENTRY.unpack(read_index_entry(1))[1] if any(read_index_entry(1)) else header.begin_physical_offset
        )
        last_offset = ENTRY.unpack(read_index_entry(last))[1]
    finally:
        file.close()
    return IndexPart(
        name, geometry.slots, geometry.entries, header, last, first_offset, last_offset, header.begin_timestamp
    )


def _entries_at(file: SegmentFile, geometry: Geometry, first: int, count: int) -> Array:
    """Return the bytes of consecutive entries; bytes that the file no longer has are zeros."""
    data = np.zeros(count * ENTRY.size, np.uint8)
    file.read_into(data, geometry.entry_position(first))
    return data


def read_entry(file: SegmentFile, part: IndexPart, number: int) -> Any:
    """Return an entry of an open IndexFile, as a row of `ENTRY_DTYPE`; zeros if the file has become shorter."""
    return _entries_at(file, part.geometry, number, 1).view(ENTRY_DTYPE)[0]


def read_entries_between(file: SegmentFile, part: IndexPart, start: int, end: int) -> tuple[int, Array]:
    """Find by bisection, and return, the entries of an IndexFile that point to a range of the log.

    Args:
        file: the open IndexFile.
        part: its description.
        start: physical offset of the range's first byte.
        end: physical offset after its last byte.

    Returns:
        The number of the first entry, and the entries.
    """

    def offset_of(number: int) -> int:
        # The median of three neighbours, so that one damaged entry does not mislead the search.
        first, last = max(1, number - 1), min(number + 1, part.last)
        data = _entries_at(file, part.geometry, first, last - first + 1)
        offsets: list[int] = data.view(ENTRY_DTYPE)["physical_offset"].tolist()
        at_edges = offsets[:1] * (number == 1) + offsets[-1:] * (number == part.last)
        return sorted([*offsets, *at_edges])[1]

    numbers = range(1, part.last + 1)
    first = 1 + bisect_left(numbers, start, key=offset_of)
    stop = 1 + bisect_left(numbers, end, key=offset_of)
    position = part.geometry.entry_position(first)
    data = read_range(file, position, position + max(0, stop - first) * ENTRY.size)
    count = len(data) // ENTRY.size
    return first, data[: count * ENTRY.size].view(ENTRY_DTYPE)
