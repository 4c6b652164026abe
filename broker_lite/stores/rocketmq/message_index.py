"""Index of a store: finds messages by UNIQ_KEY, by business key, and (since 5.5) by tag.

`index/<yyyyMMddHHmmssSSS>`; the name is the time of creation by the broker's clock and time zone. Entries go to the
newest file, and if it is full to a new one, even between the keys of one record. Like the ConsumeQueues it is derived
from the log. Source: org.apache.rocketmq.store.index.IndexService.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, Mappings, check_disk
from commitlake.broker_lite.stores.rocketmq.dispatch import Dispatch
from commitlake.broker_lite.stores.rocketmq.index_file import IndexFile
from commitlake.schemas.layouts.rocketmq.indexfile import TAGS_KEY_PREFIX, Geometry, key_hash
from commitlake.schemas.store_files import files_in

FOLDER = "index"
_NAME_LENGTH = 17
_cached_key_hash = lru_cache(maxsize=4096)(key_hash)


def index_file_name(created_ms: int) -> str:
    """Return the name of a new file: its time of creation in local time, `yyyyMMddHHmmssSSS`."""
    seconds, ms = divmod(created_ms, 1000)
    return time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{ms:03d}"


class MessageIndex:
    """Index files of a store, oldest first.

    Attributes:
        synced_timestamp: end time of the last full file that is on disk, for the checkpoint.
    """

    def __init__(self, root: Path, geometry: Geometry, mappings: Mappings, clock: Callable[[], int]) -> None:
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
        paths = [self._folder / name for name in files_in(self._folder, _is_index_name, below=mappings.root)]
        self._files = [IndexFile(MappedFile(path, geometry.file_size, mappings), geometry) for path in paths]

    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the last record that has an entry; -1 if there is none."""
        return next((file.header.end_physical_offset for file in reversed(self._files) if not file.is_empty), -1)

    def put(self, topic: str, records: Sequence[tuple[Sequence[str], int]], store_timestamp: int) -> None:
        """Enter records of a topic with the same store time, each under all its keys.

        Args:
            topic: topic of the records.
            records: keys and physical offset of each.
            store_timestamp: store time of the records, ms.

        Raises:
            DiskFullError: if the disk has no room for the next file.
        """
        entries = [(_hash_of(topic, key), offset) for keys, offset in records for key in keys]
        file = self._file_with_room()
        while len(entries) > (room := file.room):
            file.put(entries[:room], store_timestamp)
            del entries[:room]
            file = self._file_with_room()
        file.put(entries, store_timestamp)
        if file.is_full and not records[-1][0]:
            self._file_with_room()  # RocketMQ creates the next file even for a record without keys

    def check_room(self, entries: int) -> None:
        """Check that a number of entries can be added.

        Raises:
            DiskFullError: if the disk has no room for the files that they need.
        """
        missing = entries - (self._files[-1].room if self._files else 0)
        if missing > 0:
            files = -(-missing // (self._geometry.entries - 1))
            check_disk(self._folder, files * self._geometry.file_size)

    def put_again(self, record: Dispatch) -> None:
        """Enter a record that was read from the log, unless the index already contains later ones."""
        end = self.end_physical_offset
        if record.physical_offset < end:
            return
        keys: Sequence[str] = record.index_keys
        if record.physical_offset == end:
            # Its file may have become full between two of its keys, and the next file been lost.
            keys = [key for key in keys if not self._has(record, key)]
            if not keys:
                return
        self.put(record.topic, [(keys, record.physical_offset)], record.store_timestamp)

    def _has(self, record: Dispatch, key: str) -> bool:
        time = record.store_timestamp
        return record.physical_offset in self.lookup(record.topic, key, time, time)

    def _file_with_room(self) -> IndexFile:
        return self._files[-1] if self._files and self._files[-1].room else self._add_file()

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
        return (offset for offset in self.chain(topic, key, begin_ms, end_ms) if offset is not None)

    def chain(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int | None]:
        """Yield what `lookup` yields in small steps, with None in between; files may be deleted between two steps."""
        wanted = key_hash(topic, key)
        for file in reversed(list(self._files)):
            if file not in self._files or not file.spans(begin_ms, end_ms):
                continue
            for offset in file.chain(wanted, begin_ms, end_ms):
                yield offset
                if file not in self._files:
                    break

    def drop_newer_than(self, timestamp_ms: int) -> None:
        """Delete the files that end after a time, because a crash may have damaged them, and all later files.

        A later file can have earlier times if the clock was set back. It is deleted, too, because recovery adds entries
        only at the end of the index.
        """
        self._drop_from_first(lambda file: file.header.end_timestamp > timestamp_ms)

    def drop_beyond(self, physical_offset: int) -> bool:
        """Delete the files with entries at or after an offset of the log and all later files; return whether any."""
        return self._drop_from_first(
            lambda file: not file.is_empty and file.header.end_physical_offset >= physical_offset
        )

    def _drop_from_first(self, is_wrong: Callable[[IndexFile], bool]) -> bool:
        first = next((place for place, file in enumerate(self._files) if is_wrong(file)), len(self._files))
        dropped = self._files[first:]
        for file in dropped:
            self._drop(file)
        return bool(dropped)

    def drop_expired(self, min_physical_offset: int) -> None:
        """Delete the files whose records are all before an offset of the log; the last file stays."""
        for file in [file for file in self._files[:-1] if file.header.end_physical_offset < min_physical_offset]:
            self._drop(file)

    def _drop(self, file: IndexFile) -> None:
        file.delete()
        self._files.remove(file)

    def sync_full_files(self) -> None:
        """Flush full files to disk, and update `synced_timestamp`."""
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


def _hash_of(topic: str, key: str) -> int:
    # There are few tags, and they come with every message.
    return _cached_key_hash(topic, key) if key.startswith(TAGS_KEY_PREFIX) else key_hash(topic, key)
