"""IndexFile: entries are appended, and linked per hash slot from the newest to the oldest.

Two things in the file are quirks of RocketMQ. The header of a new file begins with the end of the previous file, and
the time of its first entry is relative to that. And the times of all entries are stored in whole seconds, so a query by
time must widen its window by a second. Source: org.apache.rocketmq.store.index.IndexFile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from commitlake.broker_lite.stores.engine.errors import IndexSizeError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, Mappings
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    SLOT,
    Geometry,
    Header,
    IndexFileEntry,
    parse_entry,
    parse_header,
    time_diff_seconds,
)

ENTRIES_OF_STEP = 256
TIME_STEP_MS = 1000
"""Precision of an entry's time."""
_MAX_UNCOUNTED_ENTRIES = 4096
"""Maximum number of entries of a slot that the header does not count; the search in a damaged file ends there."""

_FIRST_SLOT = Geometry().slot_position(0)
_pack_header = HEADER.struct.pack_into
_pack_entry = ENTRY.struct.pack_into
_pack_slot = SLOT.struct.pack_into
_unpack_slot = SLOT.struct.unpack_from


class IndexFile:
    """Index file, open for writes and queries.

    Attributes:
        path: path of the file.
        header: header with the range of its entries.
        is_synced: True if all changes are known to be on disk.
    """

    def __init__(self, file: MappedFile, geometry: Geometry) -> None:
        """Open an existing file; see `create`.

        Raises:
            IndexSizeError: if its size does not match the geometry.
        """
        if (size := file.path.lstat().st_size) != geometry.file_size:
            raise IndexSizeError(
                f"{file.path}: expected {geometry.file_size} bytes for {geometry.slots} slots and {geometry.entries} "
                f"entries (options index_slots and index_entries), found {size}"
            )
        self.path = file.path
        self._file = file
        self._geometry = geometry
        header = parse_header(file.memory)
        # The count is 1 for 0 entries, and 0 if the file was never flushed; values outside the file are damage.
        index_count = min(max(1, header.index_count), geometry.entries)
        self.header = header._replace(
            index_count=index_count, used_slots=min(max(0, header.used_slots), geometry.slots)
        )
        self.is_synced = True

    @classmethod
    def create(cls, path: Path, geometry: Geometry, mappings: Mappings, previous: Header | None) -> IndexFile:
        """Create an empty file that continues after the header `previous`.

        Raises:
            DiskFullError: if the disk has no room for the whole file.
        """
        created = cls(MappedFile.create(path, geometry.file_size, mappings), geometry)
        if previous is not None:
            time, offset = previous.end_timestamp, previous.end_physical_offset
            created._set_header(Header(time, time, offset, offset, 0, 1))
        return created

    @property
    def is_full(self) -> bool:
        """True if the file accepts no more entries."""
        return self.room == 0

    @property
    def is_empty(self) -> bool:
        """True if the file has no entry."""
        return self.header.index_count <= 1

    @property
    def room(self) -> int:
        """Number of entries that still fit."""
        return max(0, self._geometry.entries - self.header.index_count)

    def put(self, entries: Sequence[tuple[int, int]], store_timestamp: int) -> None:
        """Append entries of records with the same store time, at most as many as fit.

        Args:
            entries: key hash and physical offset of each.
            store_timestamp: store time of the records, ms.
        """
        if not entries:
            return
        memory, slots = self._file.memory, self._geometry.slots
        begin, _, begin_offset, _, used_slots, number = self.header
        position = self._geometry.entry_position(number)
        time_diff = time_diff_seconds(store_timestamp, begin)
        physical_offset = 0
        for key_hash, physical_offset in entries:
            slot = _FIRST_SLOT + SLOT.size * (key_hash % slots)
            newest = _unpack_slot(memory, slot)[0]
            if not 0 <= newest < number:
                newest = self._newest_before(number, newest)
            _pack_entry(memory, position, key_hash, physical_offset, time_diff, newest)
            _pack_slot(memory, slot, number)
            if number <= 1:
                begin, begin_offset = store_timestamp, physical_offset
                time_diff = time_diff_seconds(store_timestamp, begin)
            used_slots += newest == 0
            number += 1
            position += ENTRY.size
        self._set_header(Header(begin, store_timestamp, begin_offset, physical_offset, used_slots, number))
        self.is_synced = False

    def _newest_before(self, number: int, newest: int) -> int:
        """Return the newest entry of a slot that the header counts; 0 if there is none.

        If a process ended after it wrote an entry and before it wrote the header, the slot names an entry that the
        header does not count. That entry still names the one before it. RocketMQ's broker does not follow that link, so
        it loses the older entries of the slot.
        """
        above = self._geometry.entries
        for _ in range(_MAX_UNCOUNTED_ENTRIES):
            if not number <= newest < above:
                break
            above = newest
            newest = parse_entry(self._file.memory, self._geometry.entry_position(newest)).previous_entry
        return newest if 0 < newest < number else 0

    def _set_header(self, header: Header) -> None:
        self.header = header
        _pack_header(self._file.memory, 0, *header)

    def spans(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether an entry from begin to end, both included, may be in this file."""
        return not self.is_empty and self.header.begin_timestamp <= end_ms and begin_ms <= self.header.end_timestamp

    def lookup(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return the physical offsets of the entries with a hash in a time window, newest first.

        Other keys may have the same hash, and times are rounded: the caller must check the records.
        """
        return [offset for offset in self.chain(key_hash, begin_ms, end_ms) if offset is not None]

    def chain(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield what `lookup` returns in small steps: None after every `ENTRIES_OF_STEP` entries of a long chain."""
        slot = self._geometry.slot_position(key_hash % self._geometry.slots)
        number = _unpack_slot(self._file.memory, slot)[0]
        above = self.header.index_count
        if number >= above:
            number = self._newest_before(above, number)
        count = 0
        # Valid links lead to older entries only; a damaged one could form a cycle.
        while 0 < number < above:
            entry = parse_entry(self._file.memory, self._geometry.entry_position(number))
            if entry.key_hash == key_hash and self._may_be_within(number, entry, begin_ms, end_ms):
                yield entry.physical_offset
            count += 1
            if count % ENTRIES_OF_STEP == 0:
                yield None
            number, above = entry.previous_entry, number

    def _may_be_within(self, number: int, entry: IndexFileEntry, begin_ms: int, end_ms: int) -> bool:
        time = self.header.begin_timestamp
        if number > 1:
            # The first entry's time is relative to the previous file.
            time += entry.time_diff * TIME_STEP_MS
        return begin_ms - TIME_STEP_MS < time <= end_ms

    def sync(self) -> None:
        """Flush the file to disk; may run while another thread appends."""
        self.is_synced = True
        self._file.sync()

    def unmap(self) -> None:
        """Unmap the file."""
        self._file.unmap()

    def delete(self) -> None:
        """Delete the file."""
        self._file.delete()
