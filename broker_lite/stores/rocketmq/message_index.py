"""Index of a store: finds messages by UNIQ_KEY, by business key, and (since 5.5) by tag.

`index/<yyyyMMddHHmmssSSS>`; the name is the time of creation by the broker's clock and time zone. Entries go to the
newest file, and if it is full to a new one, even between the keys of one record. Like the ConsumeQueues it is derived
from the log.

Two things in a file are quirks of RocketMQ. The header of a new file begins with the end of the previous file, and the
time of its first entry is relative to that. And the times of all entries are stored in whole seconds, so a query by
time must widen its window by a second. Source: org.apache.rocketmq.store.index.IndexService, IndexFile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from commitlake.broker_lite.errors import IndexSizeError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles, check_free_space
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    SLOT,
    TAGS_KEY_PREFIX,
    Geometry,
    Header,
    IndexFileEntry,
    key_hash,
    parse_entry,
    parse_header,
    time_diff_seconds,
)
from commitlake.schemas.safe_store_files import files_in

FOLDER = "index"
ENTRIES_OF_STEP = 256
TIME_STEP_MS = 1000
"""Precision of an entry's time."""
_MAX_UNCOUNTED_ENTRIES = 4096
"""Maximum number of entries of a slot that the header does not count; the search in a damaged file ends there."""
_NAME_LENGTH = 17
_FIRST_SLOT = Geometry().slot_position(0)
_pack_header = HEADER.struct.pack_into
_pack_entry = ENTRY.struct.pack_into
_pack_slot = SLOT.struct.pack_into
_unpack_slot = SLOT.struct.unpack_from
_cached_key_hash = lru_cache(maxsize=4096)(key_hash)


class IndexFile:
    """Index file that is open for reading and writing; the entries of each hash slot are linked from new to old.

    Attributes:
        path: path of the file.
        header: header with the range of its entries.
        is_synced: True if all changes are known to be on disk.
    """

    def __init__(self, file: MappedFile, geometry: Geometry) -> None:
        """Open an existing index file.

        Raises:
            IndexSizeError: if its size does not match the geometry.
        """
        if (size := file.path.lstat().st_size) != geometry.file_size:
            raise IndexSizeError(
                f"{file.path}: expected {geometry.file_size} bytes, which {geometry.slots} slots and "
                f"{geometry.entries} entries need, found {size}: set the options index_slots and index_entries to "
                "those of the file"
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
    def create(cls, path: Path, geometry: Geometry, mappings: MappedFiles, previous_header: Header | None) -> IndexFile:
        """Create an empty file whose header continues the header of the previous file.

        Raises:
            DiskFullError: if the disk has no room for the whole file.
        """
        created = cls(MappedFile.create(path, geometry.file_size, mappings), geometry)
        if previous_header is not None:
            time, offset = previous_header.end_timestamp, previous_header.end_physical_offset
            created._set_header(Header(time, time, offset, offset, 0, 1))
        return created

    @property
    def is_full(self) -> bool:
        """True if the file accepts no more entries."""
        return self.free_entry_count == 0

    @property
    def is_empty(self) -> bool:
        """True if the file has no entry."""
        return self.header.index_count <= 1

    @property
    def free_entry_count(self) -> int:
        """Number of entries that still fit in the file."""
        return max(0, self._geometry.entries - self.header.index_count)

    def put(self, entries: Sequence[tuple[int, int]], store_timestamp: int) -> None:
        """Append entries for records with the same store time; the caller ensures that they fit.

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
        for hashed, physical_offset in entries:
            slot = _FIRST_SLOT + SLOT.size * (hashed % slots)
            newest = _unpack_slot(memory, slot)[0]
            if not 0 <= newest < number:
                newest = self._newest_counted_entry(number, newest)
            _pack_entry(memory, position, hashed, physical_offset, time_diff, newest)
            _pack_slot(memory, slot, number)
            if number <= 1:
                begin, begin_offset = store_timestamp, physical_offset
                time_diff = time_diff_seconds(store_timestamp, begin)
            used_slots += newest == 0
            number += 1
            position += ENTRY.size
        # The header last. If the process is killed before it, the slots name entries that it does not count; see
        # `_newest_counted_entry`.
        self._set_header(Header(begin, store_timestamp, begin_offset, physical_offset, used_slots, number))
        self.is_synced = False

    def _newest_counted_entry(self, end_entry_number: int, newest_entry_number: int) -> int:
        """Return a hash slot's newest entry that the file's header counts, whose number is below `end_entry_number`.

        If a process ended after it wrote an entry and before it wrote the header, the slot names an entry that the
        header does not count. That entry still names the one before it. RocketMQ's broker does not follow that link, so
        it loses the older entries of the slot.
        """
        above = self._geometry.entries
        for _ in range(_MAX_UNCOUNTED_ENTRIES):
            if not end_entry_number <= newest_entry_number < above:
                break
            above = newest_entry_number
            newest_entry_number = parse_entry(
                self._file.memory, self._geometry.entry_position(newest_entry_number)
            ).previous_entry
        return newest_entry_number if 0 < newest_entry_number < end_entry_number else 0

    def _set_header(self, header: Header) -> None:
        self.header = header
        _pack_header(self._file.memory, 0, *header)

    def overlaps_time_range(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether the file may contain entries of a time range, which includes both ends."""
        return not self.is_empty and self.header.begin_timestamp <= end_ms and begin_ms <= self.header.end_timestamp

    def lookup(self, key_hash: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return the physical offsets of the entries with a hash in a time window, newest first.

        Other keys may have the same hash, and times are rounded: the caller must check the records.
        """
        return [offset for offset in self.lookup_in_steps(key_hash, begin_ms, end_ms) if offset is not None]

    def lookup_in_steps(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield the offsets of records whose keys have a hash, newest first, and None at intervals, to allow pauses."""
        slot = self._geometry.slot_position(key_hash % self._geometry.slots)
        number = _unpack_slot(self._file.memory, slot)[0]
        above = self.header.index_count
        if number >= above:
            number = self._newest_counted_entry(above, number)
        count = 0
        # Valid links lead to older entries only; a damaged one could form a cycle.
        while 0 < number < above:
            entry = parse_entry(self._file.memory, self._geometry.entry_position(number))
            if entry.key_hash == key_hash and self._may_be_in_time_range(number, entry, begin_ms, end_ms):
                yield entry.physical_offset
            count += 1
            if count % ENTRIES_OF_STEP == 0:
                yield None
            number, above = entry.previous_entry, number

    def _may_be_in_time_range(self, entry_number: int, entry: IndexFileEntry, begin_ms: int, end_ms: int) -> bool:
        time = self.header.begin_timestamp
        if entry_number > 1:
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


def index_file_name(created_ms: int) -> str:
    """Return the name of a new file: its time of creation in local time, `yyyyMMddHHmmssSSS`."""
    seconds, ms = divmod(created_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{ms:03d}"


class MessageIndex:
    """Index files of a store, oldest first.

    Attributes:
        synced_timestamp: end time of the last full file that is on disk, for the checkpoint.
    """

    def __init__(self, root: Path, geometry: Geometry, mappings: MappedFiles, clock: Callable[[], int]) -> None:
        """Open the files of the store at `root`.

        Raises:
            StoreFilesError: if the size of a file does not match the geometry.
            UnsafeFileError: if a file is a symbolic link or not a regular file.
        """
        self._folder = root / FOLDER
        self._geometry = geometry
        self._mappings = mappings
        self._clock = clock
        self.synced_timestamp = 0
        paths = [self._folder / name for name in files_in(self._folder, _is_index_name, trusted_root=mappings.root)]
        self._files = [IndexFile(MappedFile(path, geometry.file_size, mappings), geometry) for path in paths]

    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the last record that has an entry; -1 if there is none."""
        return next((file.header.end_physical_offset for file in reversed(self._files) if not file.is_empty), -1)

    def put(self, topic: str, records: Sequence[tuple[Sequence[str], int]], store_timestamp: int) -> None:
        """Add index entries for records of a topic with the same store time, one for each key of a record.

        Args:
            topic: topic of the records.
            records: keys and physical offset of each.
            store_timestamp: store time of the records, ms.

        Raises:
            DiskFullError: if the disk has no room for the next file.
        """
        entries = [(_key_hash(topic, key), offset) for keys, offset in records for key in keys]
        file = self._file_with_room()
        # The keys of one record may be in two files, as in RocketMQ.
        while len(entries) > (room := file.free_entry_count):
            file.put(entries[:room], store_timestamp)
            del entries[:room]
            file = self._file_with_room()
        file.put(entries, store_timestamp)
        if file.is_full and not records[-1][0]:
            self._file_with_room()  # RocketMQ creates the next file even for a record without keys

    def check_free_space(self, entry_count: int) -> None:
        """Raise an error if the disk has no room for a number of further entries.

        Raises:
            DiskFullError: if the disk has no room for the files that they need.
        """
        missing = entry_count - (self._files[-1].free_entry_count if self._files else 0)
        if missing > 0:
            files = -(-missing // (self._geometry.entries - 1))
            check_free_space(self._folder, files * self._geometry.file_size)

    def put_recovered(self, dispatch: Dispatch) -> None:
        """Add index entries for a record that recovery has read, unless the index already contains later records."""
        end = self.end_physical_offset
        if dispatch.physical_offset < end:
            return
        keys: Sequence[str] = dispatch.index_keys
        if dispatch.physical_offset == end:
            # Its file may have become full between two of its keys, and the next file been lost.
            keys = [key for key in keys if not self._has_entry(dispatch, key)]
            if not keys:
                return
        self.put(dispatch.topic, [(keys, dispatch.physical_offset)], dispatch.store_timestamp)

    def _has_entry(self, record: Dispatch, key: str) -> bool:
        time = record.store_timestamp
        return record.physical_offset in self.lookup(record.topic, key, time, time)

    def _file_with_room(self) -> IndexFile:
        return self._files[-1] if self._files and self._files[-1].free_entry_count else self._add_file()

    def _add_file(self) -> IndexFile:
        previous = self._files[-1] if self._files else None
        created_ms = self._clock()
        name = index_file_name(created_ms)
        # Files are read in the order of their names, which must not change if the clock stops or goes back.
        while previous is not None and name <= previous.path.name:
            name = f"{int(previous.path.name) + 1:0{_NAME_LENGTH}d}"
        path = self._folder / name
        file = IndexFile.create(path, self._geometry, self._mappings, previous.header if previous else None)
        self._files.append(file)
        return file

    def lookup(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Yield the physical offsets of records that may have a key, newest first; the caller must check the records.

        Args:
            topic: topic under which the records are stored.
            key: a UNIQ_KEY, a business key, or `tags_key(...)`.
            begin_ms: earliest store time.
            end_ms: latest store time.
        """
        return (offset for offset in self.lookup_in_steps(topic, key, begin_ms, end_ms) if offset is not None)

    def lookup_in_steps(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield offsets of records that may have a key, newest first, and None at intervals, to allow pauses."""
        wanted = key_hash(topic, key)
        for file in reversed(list(self._files)):
            if file not in self._files or not file.overlaps_time_range(begin_ms, end_ms):
                continue
            for offset in file.lookup_in_steps(wanted, begin_ms, end_ms):
                yield offset
                if file not in self._files:
                    break

    def drop_newer_than(self, timestamp_ms: int) -> None:
        """Delete the first file with entries after a time and all later files, as a crash may have damaged them.

        A later file can have earlier times if the clock was set back. It is deleted, too, because recovery adds entries
        only at the end of the index.
        """
        self._drop_files_from_first(lambda file: file.header.end_timestamp > timestamp_ms)

    def drop_from_offset(self, physical_offset: int) -> bool:
        """Delete all files from the first one with entries at or after an offset; return whether there was one."""
        return self._drop_files_from_first(
            lambda file: not file.is_empty and file.header.end_physical_offset >= physical_offset
        )

    def _drop_files_from_first(self, must_be_dropped: Callable[[IndexFile], bool]) -> bool:
        first = next((place for place, file in enumerate(self._files) if must_be_dropped(file)), len(self._files))
        dropped = self._files[first:]
        for file in dropped:
            self._drop_file(file)
        return bool(dropped)

    def drop_expired(self, min_physical_offset: int) -> None:
        """Delete the files whose records are all before an offset of the log; the last file stays."""
        for file in [file for file in self._files[:-1] if file.header.end_physical_offset < min_physical_offset]:
            self._drop_file(file)

    def _drop_file(self, file: IndexFile) -> None:
        file.delete()
        self._files.remove(file)

    def sync_full_files(self) -> None:
        """Flush files that are full to disk, and update `synced_timestamp`."""
        for file in list(self._files):
            if file.is_full and not file.is_synced:
                file.sync()
                self.synced_timestamp = max(self.synced_timestamp, file.header.end_timestamp)

    def sync(self) -> None:
        """Flush all files to disk."""
        self.sync_full_files()
        for file in list(self._files):
            if not file.is_synced:
                file.sync()


def _is_index_name(name: str) -> bool:
    return len(name) == _NAME_LENGTH and name.isdecimal()


def _key_hash(topic: str, key: str) -> int:
    # There are few tags, and they come with every message.
    return _cached_key_hash(topic, key) if key.startswith(TAGS_KEY_PREFIX) else key_hash(topic, key)
