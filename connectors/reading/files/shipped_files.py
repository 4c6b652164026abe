"""Queues and indexes of a copy in an object store or HDFS, by their paths in the store.

A copy consists of the files that its manifest names, see `schemas.shipped_manifest`. The manifest is read once, when
the files are opened; files shipped later are not seen. If the agent merges parts meanwhile, the manifest is read again
to find the same bytes, once for all files whose parts were merged by then. The tasks of a run, to which the files are
pickled, read a later manifest, once per process; see `ShippedStoreFiles`.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import count

import numpy as np
import pyarrow.fs as pafs

from commitlake.connectors.log_format.files import IndexedFile, StoreFiles
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.index_files import MAX_FILE_BYTES, MissingObjectError, has_data
from commitlake.connectors.reading.files.read_ahead import ReadAhead
from commitlake.connectors.reading.files.remote_files import RemoteFile
from commitlake.connectors.reading.files.segment_files import RemoteSegment
from commitlake.connectors.reading.files.shipped_stores import (
    MultiPartFile,
    read_shipped_manifest,
    resolve_filesystem,
)
from commitlake.schemas.shipped_manifest import FILES_MANIFEST, Manifest, ShippedFile

MAX_WHOLE_BYTES = 256 << 10
"""Largest remote file that is read with one request and kept. A queue's file has 6 MB; most tasks need little of it."""
BLOCK_BYTES = 64 << 10
"""Number of bytes of a request for a small part of a larger file."""
_MAX_KEPT_BYTES = 64 << 20
_MAX_OPEN_OBJECTS = 64
_numbers = count()
_Key = tuple[int, str, int]  # number of the opened store, path of a file, number of its block or -1


class NoCopyError(StoreError):
    """A store in an object store was not copied by `commitlake ship`."""


def open_shipped_files(root: str, *, is_read_once: bool = False) -> ShippedStoreFiles:
    """Return access to the files of a store's copy in an object store or HDFS.

    Args:
        root: the store's folder, as a URI.
        is_read_once: whether no part of a file is read twice, so that nothing is kept in memory.

    Raises:
        NoCopyError: if `commitlake ship` did not make it.
        StoreError: if the manifest is damaged.
    """
    filesystem, store = resolve_filesystem(root)
    manifest = read_shipped_manifest(filesystem, store, FILES_MANIFEST)
    if manifest is None:
        raise no_copy_error(root)
    return ShippedStoreFiles(filesystem, store, root, manifest, is_read_once=is_read_once)


def no_copy_error(root: str) -> NoCopyError:
    """Return the error for a store in an object store that `commitlake ship` did not copy."""
    return NoCopyError(
        f"{root}: expected a copy that 'commitlake ship' made, with queues and indexes, found no {FILES_MANIFEST}"
    )


class ShippedStoreFiles:
    """Files of a copy of a store in an object store or HDFS, which several threads can use.

    A small file is read with one request. In a larger one, small reads are served from blocks of 64 KiB, and large
    reads in order are read ahead. The small files and blocks that were used last are kept, at most 64 MiB for all
    stores of this process.

    A process that receives it by pickle reads the manifest when it first uses one of these pickles. Files that were
    complete are unchanged in this manifest, and others have at least the same bytes.

    Args:
        filesystem: the filesystem of the store.
        store: the store's folder in it.
        uri: URI of this folder.
        manifest: the manifest of its queues and indexes.
        is_read_once: see `open_shipped_files`.

    Raises:
        StoreError: if the manifest names a file that is larger than any file of a broker.
    """

    def __init__(
        self, filesystem: pafs.FileSystem, store: str, uri: str, manifest: Manifest, *, is_read_once: bool = False
    ) -> None:
        self.manifest = manifest
        self._newest, self._reading = manifest, threading.Lock()
        self._is_read_once = is_read_once
        self._filesystem = filesystem
        self._store = store
        self._uri = uri
        self._number, self._run = next(_numbers), secrets.token_hex(8)
        self._objects: OrderedDict[str, RemoteSegment] = OrderedDict()
        self._lock = threading.Lock()
        self._folders: dict[str, set[str]] = defaultdict(set)
        self._files: dict[str, list[str]] = defaultdict(list)
        for path, entry in manifest.files.items():
            if entry.size > MAX_FILE_BYTES:
                raise StoreError(
                    f"{self.location_of(path)}: {FILES_MANIFEST} says that the file has {entry.size} bytes: expected "
                    f"at most {MAX_FILE_BYTES} bytes for a file other than a segment"
                )
            folder, _, name = path.rpartition("/")
            self._files[folder].append(name)
            while folder:
                parent, _, name = folder.rpartition("/")
                self._folders[parent].add(name)
                folder = parent

    def __reduce__(self) -> tuple[Callable[[str, str], StoreFiles], tuple[str, str]]:
        """Pickle only the location of the copy; the other process opens its files when they are used."""
        return _PickledStoreFiles, (self._uri, self._run)

    def folders_in(self, folder: str) -> list[str]:
        """Return the sorted names of the folders in a folder."""
        return sorted(self._folders.get(folder, ()))

    def files_in(self, folder: str, is_wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the sorted names of the files in a folder that match a filter."""
        return sorted(filter(is_wanted, self._files.get(folder, ())))

    def has_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return folder in self._files or folder in self._folders

    def size_of(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self._get_entry(path).size

    def data_end(self, path: str) -> int:
        """Return the position in a file at which its copied bytes end."""
        return self._get_entry(path).shipped_bytes

    def has_data(self, path: str) -> bool:
        """Return whether a file has a byte that is not zero.

        The agent ships a file that a broker is writing up to its last byte that is not zero, and other files as a
        whole.
        """
        entry = self._get_entry(path)
        return has_data(self.open(path)) if entry.is_sealed else entry.shipped_bytes > 0

    def open(self, path: str, read_end: int | None = None) -> IndexedFile:
        """Open a file of the copy for reading."""
        entry = self._get_entry(path)
        if entry.shipped_bytes > MAX_WHOLE_BYTES:
            # Opened here although nothing is read yet, so that the caller hears of a missing object at this place.
            self.open_entry(entry)  # which raises an error if it is missing
            return _LargeFile(_ShippedObject(self, entry), entry, entry.shipped_bytes if read_end is None else read_end)
        key = self._number, path, -1
        # Without a lock around the read: two threads may read the same file at once, and one result is kept.
        if (kept := _KEPT.get(key)) is None:
            kept = _FileInMemory(self._read_range(entry, 0, entry.shipped_bytes), entry.size)
            self._keep_in_memory(key, kept, entry.shipped_bytes)
        assert isinstance(kept, _FileInMemory)
        return kept

    def location_of(self, path: str) -> str:
        """Return the URI of a file or folder."""
        return f"{self._uri.rstrip('/')}/{path}"

    def read_block(self, entry: ShippedFile, number: int) -> Array:
        """Return a block of a large file; the last block ends where the shipped bytes end.

        Args:
            entry: the file's entry in the manifest.
            number: number of the block.
        """
        key = self._number, entry.name, number
        if (kept := _KEPT.get(key)) is None:
            start = number * BLOCK_BYTES
            kept = self._read_range(entry, start, min(start + BLOCK_BYTES, entry.shipped_bytes))
            self._keep_in_memory(key, kept, len(kept))
        assert isinstance(kept, np.ndarray)
        return kept

    def open_entry(self, entry: ShippedFile) -> RemoteSegment:
        """Return an open file for a file of the copy, whether it is one object or in parts.

        Raises:
            MissingObjectError: if the manifest names the object, and it is missing.
            StoreError: if it has another size.
        """
        # The lock is not held during the request, so that other files can be opened meanwhile.
        with self._lock:
            if (found := self._objects.get(entry.name)) is not None:
                self._objects.move_to_end(entry.name)
                return found
        try:
            if entry.is_sealed:
                found = RemoteFile(self._filesystem, f"{self._store}/{entry.name}")
            else:
                found = MultiPartFile(self._filesystem, self._store, entry.name, entry, self._read_newer_entry)
        except FileNotFoundError:
            place = self.location_of(entry.name)
            raise MissingObjectError(
                f"{place}: expected {entry.shipped_bytes} bytes, found no such object: the copy was changed"
            ) from None
        # The size was fixed when the file was complete, so any other size means another object.
        if entry.is_sealed and found.size() != entry.size:
            size = found.size()
            found.close()
            raise self.changed_object_error(entry, size)
        with self._lock:
            self._objects[entry.name] = found
            if len(self._objects) > _MAX_OPEN_OBJECTS:
                self._objects.popitem(last=False)  # not closed here: another thread may read it, and drops it then
        return found

    def _keep_in_memory(self, key: _Key, item: _FileInMemory | Array, size: int) -> None:
        if not self._is_read_once:
            _KEPT.put(key, item, size)

    def _read_newer_entry(self, entry: ShippedFile) -> ShippedFile:
        """Return a file's entry in a newer manifest, because a part in the known entry no longer exists."""
        # One thread reads the manifest for all that miss a part; the others then find it renewed.
        with self._reading:
            if self._newest.files.get(entry.name) == entry:
                manifest = read_shipped_manifest(self._filesystem, self._store, FILES_MANIFEST)
                self._newest = manifest or replace(self._newest, files={})
            newer = self._newest.files.get(entry.name)
        # Shipped bytes never become fewer, except if another store was shipped to this place.
        if newer is None or newer.shipped_bytes < entry.shipped_bytes:
            raise self.changed_object_error(entry, 0 if newer is None else newer.shipped_bytes)
        # The head of a file is compared, too: another broker's file may have the same name and size.
        if entry.head_size and entry.head_size == newer.head_size and entry.head_crc != newer.head_crc:
            raise StoreError(
                f"{self.location_of(entry.name)}: expected that the first {entry.head_size} bytes have the CRC-32 "
                f"{entry.head_crc:08x}, found {newer.head_crc:08x}: the copy was changed"
            )
        return newer

    def _read_range(self, entry: ShippedFile, start: int, end: int) -> Array:
        return _ShippedObject(self, entry).read_at(end - start, start)

    def changed_object_error(self, entry: ShippedFile, found_size: int) -> StoreError:
        """Return the error for an object that does not have the size that the manifest states."""
        place = self.location_of(entry.name)
        return StoreError(f"{place}: expected {entry.shipped_bytes} bytes, found {found_size}: the copy was changed")

    def _get_entry(self, path: str) -> ShippedFile:
        entry = self.manifest.files.get(path)
        if entry is None:
            raise FileNotFoundError(f"{self.location_of(path)} does not exist")
        return entry


class _PickledStoreFiles:
    """Files of a shipped copy after unpickling in another process; the copy is opened at the first use.

    Args:
        root: the store's folder, as a URI.
        run: a name for the files that the other process has opened.
    """

    def __init__(self, root: str, run: str) -> None:
        self._root = root
        self._run = run

    @property
    def _open_files(self) -> StoreFiles:
        return _open_files_for_run(self._root, self._run)

    def folders_in(self, folder: str) -> list[str]:
        """Return the sorted names of the folders in a folder."""
        return self._open_files.folders_in(folder)

    def files_in(self, folder: str, is_wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the sorted names of the files in a folder that match a filter."""
        return self._open_files.files_in(folder, is_wanted)

    def has_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return self._open_files.has_folder(folder)

    def size_of(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self._open_files.size_of(path)

    def data_end(self, path: str) -> int:
        """Return the position in a file at which its copied bytes end."""
        return self._open_files.data_end(path)

    def has_data(self, path: str) -> bool:
        """Return whether a file has a byte that is not zero."""
        return self._open_files.has_data(path)

    def open(self, path: str, read_end: int | None = None) -> IndexedFile:
        """Open a file of the copy for reading."""
        return self._open_files.open(path, read_end)

    def location_of(self, path: str) -> str:
        """Return the URI of a file or folder."""
        return self._open_files.location_of(path)


@lru_cache(maxsize=8)
def _open_files_for_run(root: str, run: str) -> StoreFiles:  # noqa: ARG001 (a later run must not have this manifest)
    return open_shipped_files(root)


class _MemoryCache:
    """Cache of the most recently used small files and blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: OrderedDict[_Key, tuple[_FileInMemory | Array, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: _Key) -> _FileInMemory | Array | None:
        """Return the item of a key, or None if it is not cached."""
        with self._lock:
            if key not in self._items:
                return None
            self._items.move_to_end(key)
            return self._items[key][0]

    def put(self, key: _Key, item: _FileInMemory | Array, size: int) -> None:
        """Cache an item; `size` is its size in bytes."""
        with self._lock:
            if key in self._items:  # another thread has read it, too
                return
            self._items[key] = item, size
            self._bytes += size
            while self._bytes > _MAX_KEPT_BYTES:
                _, (_, freed) = self._items.popitem(last=False)
                self._bytes -= freed


_KEPT = _MemoryCache()


class _FileInMemory:
    """Small file in memory; bytes that were not shipped appear as a hole."""

    def __init__(self, data: Array, size: int) -> None:
        self._data = data
        self._size = size

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; return the number of bytes read."""
        size = max(0, min(len(window), self._size - position))
        data = self._data[position : position + size]
        window[: len(data)] = data
        window[len(data) : size] = 0
        return size

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return self._size

    def next_data(self, position: int) -> int | None:
        """Return the first position at or after `position` that is not in a hole, or None."""
        return position if position < len(self._data) else None

    def next_hole(self, position: int) -> int:
        """Return the first position at or after `position` that is in a hole, or the end of the file."""
        return max(position, len(self._data))

    def close(self) -> None:
        """Do nothing, because the file may be opened again."""


class _ShippedObject:
    """File of a copy that is one object in an object store, opened at most once for all reads."""

    def __init__(self, files: ShippedStoreFiles, entry: ShippedFile) -> None:
        self._files = files
        self._entry = entry

    def read_at(self, size: int, position: int) -> Array:
        """Return bytes from a position of the file; the caller has checked that all of them were copied."""
        data = self._files.open_entry(self._entry).read_at(size, position)
        self._check_complete(position + len(data), position + size)
        return data

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; the caller has checked that all of these bytes were copied."""
        found = self._files.open_entry(self._entry).read_into(window, position)
        self._check_complete(position + found, position + len(window))
        return found

    def read_block(self, window: Array, position: int) -> None:
        """Fill a small window from cached blocks; the caller has checked that all of its bytes were copied."""
        done = 0
        while done < len(window):
            number, start = divmod(position + done, BLOCK_BYTES)
            data = self._files.read_block(self._entry, number)[start:][: len(window) - done]
            window[done : done + len(data)] = data
            done += len(data)

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return self._entry.size

    def close(self) -> None:
        """Do nothing: the store keeps the object open for other reads."""

    def _check_complete(self, found_size: int, expected_size: int) -> None:
        if found_size < expected_size:
            raise self._files.changed_object_error(self._entry, found_size)


class _LargeFile:
    """Large file that is read in blocks or with read-ahead; bytes that were not shipped appear as a hole."""

    def __init__(self, file: _ShippedObject, entry: ShippedFile, end: int) -> None:
        self._file = file
        self._ahead = ReadAhead(file)
        self._shipped, self._size = entry.shipped_bytes, entry.size
        self._end = min(end, entry.shipped_bytes)  # most reads end before it

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; return the number of bytes read."""
        size = max(0, min(len(window), self._size - position))
        shipped = window[: max(0, min(size, self._shipped - position))]
        # Large reads come in order and are read ahead. Small ones jump, as in a bisection, and share blocks.
        if len(shipped) >= BLOCK_BYTES:
            self._ahead.read_into(shipped, position, self._end)
        elif len(shipped):
            self._file.read_block(shipped, position)
        window[len(shipped) : size] = 0
        return size

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return self._size

    def next_data(self, position: int) -> int | None:
        """Return the first position at or after `position` that is not in a hole, or None."""
        return position if position < self._shipped else None

    def next_hole(self, position: int) -> int:
        """Return the first position at or after `position` that is in a hole, or the end of the file."""
        return max(position, self._shipped)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
