"""Queues and indexes of a store, by their paths in it: on a disk, or in a copy in an object store or HDFS.

Of a copy, only the files exist that its manifest names, see `schemas.shipped`. The manifest is read once, when the
files are opened: what the agent ships later is not seen. If the agent merges parts meanwhile, the manifest is read
again to find the same bytes, once for all files whose parts were merged by then.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow.fs as pafs

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.errors import StoreError
from commitlake.connectors.formats.engine.files import LocalFile, RemoteSegment, SegmentFile
from commitlake.connectors.formats.engine.read_ahead import ReadAhead
from commitlake.connectors.formats.engine.remote_files import RemoteFile
from commitlake.connectors.formats.engine.shipped import PartedFile, read_shipped_manifest, resolve_filesystem
from commitlake.schemas.shipped import FILES_MANIFEST, Manifest, ShippedFile
from commitlake.schemas.store_files import files_in, folders_in

MAX_WHOLE_BYTES = 8 << 20
"""Largest part of a remote file that is read by one request and kept; a queue's file has 6 MB."""
_MAX_KEPT_BYTES = 64 << 20
_MAX_SEARCHED_BYTES = (1 << 31) - 1  # a broker computes the size of these files as an int


class IndexedFile(SegmentFile, Protocol):
    """Open file of a queue or an index, which may have holes."""

    def next_data(self, position: int) -> int | None:
        """Return the first position from `position` on that is not in a hole, or None."""
        ...

    def next_hole(self, position: int) -> int:
        """Return the first position from `position` on that is in a hole, or the end of the file."""
        ...


class StoreFiles(Protocol):
    """Files of a store; each path is relative to the store's folder, such as `consumequeue/orders/3`."""

    def folders_in(self, folder: str) -> list[str]:
        """Return the sorted names of the folders in a folder; an empty list if it does not exist.

        Raises:
            UnsafeFileError: for a link among them.
        """
        ...

    def files_in(self, folder: str, is_wanted: Callable[[str], bool] = ...) -> list[str]:
        """Return the sorted names of the files in a folder that match a filter; empty if it does not exist.

        Raises:
            UnsafeFileError: for a link or a device with such a name.
        """
        ...

    def has_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        ...

    def size_of(self, path: str) -> int:
        """Return the size of a file, bytes.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def data_end(self, path: str) -> int:
        """Return a position after which a file has only zeros: the end of what was shipped, or the size of the file.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def has_data(self, path: str) -> bool:
        """Return whether a file has anything but zeros. Of a copy, mostly the manifest tells.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def open(self, path: str, end: int | None = None) -> IndexedFile:
        """Open a file.

        Args:
            path: the file.
            end: position before which most reads will end, so that no more is read ahead; None for the file's end.

        Raises:
            FileNotFoundError: if it does not exist.
            StoreError: if a copy of it has other bytes than the manifest says.
            UnsafeFileError: if it is a link or not a regular file.
        """
        ...

    def place_of(self, path: str) -> str:
        """Return the path or URI of a file or folder, for messages."""
        ...


def open_store_files(root: str, kept_bytes: int | None = None) -> StoreFiles:
    """Return the files of a store.

    Args:
        root: the store's folder, as a path or URI.
        kept_bytes: limit for the small files of a copy that are kept in memory; None for 64 MiB.

    Raises:
        StoreError: for a store in an object store that `commitlake ship` did not copy, or with a damaged manifest.
    """
    if "://" not in root:
        return LocalStoreFiles(Path(root))
    filesystem, store = resolve_filesystem(root)
    manifest = read_shipped_manifest(filesystem, store, FILES_MANIFEST)
    if manifest is None:
        raise StoreError(
            f"{root}: expected a copy that 'commitlake ship' made, with queues and indexes, found no {FILES_MANIFEST}"
        )
    return ShippedStoreFiles(filesystem, store, root, manifest, kept_bytes)


def store_of(log_root: str) -> str:
    """Return the folder of a store, as a path or URI.

    Args:
        log_root: the folder of its log.

    >>> store_of("s3://logs/broker-a/commitlog"), store_of("/data/store/commitlog")
    ('s3://logs/broker-a', '/data/store')
    """
    return log_root.rpartition("/")[0] if "://" in log_root else str(Path(log_root).parent)


class LocalStoreFiles:
    """Files of a store on a disk; the top-level folders may be links, and nothing below them; see StoreFiles."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folders_in(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder; see StoreFiles."""
        return folders_in(self._root / folder, below=self._top(folder))

    def files_in(self, folder: str, is_wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the names of the files in a folder; see StoreFiles."""
        return files_in(self._root / folder, is_wanted, below=self._top(folder))

    def has_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return (self._root / folder).is_dir()

    def size_of(self, path: str) -> int:
        """Return the size of a file, bytes; see StoreFiles."""
        return (self._root / path).lstat().st_size

    def data_end(self, path: str) -> int:
        """Return the size of a file, because its holes are only known when it is open; see StoreFiles."""
        return self.size_of(path)

    def has_data(self, path: str) -> bool:
        """Return whether a file has anything but zeros; see StoreFiles."""
        return _has_data(self.open(path))

    def open(self, path: str, end: int | None = None) -> LocalFile:  # noqa: ARG002 (nothing is read ahead)
        """Open a file; see StoreFiles."""
        return LocalFile(self.place_of(path), self._top(path))

    def place_of(self, path: str) -> str:
        """Return the path of a file or folder."""
        return str(self._root / path)

    def _top(self, path: str) -> Path:
        return self._root / path.partition("/")[0]


class ShippedStoreFiles:
    """Files of a copy in an object store or HDFS; see StoreFiles.

    A small file is read by one request, and the ones that were opened last are kept, at most 64 MiB. Larger files are
    read ahead.

    Args:
        filesystem: the filesystem of the store.
        store: the store's folder in it.
        uri: URI of this folder.
        manifest: the manifest of its queues and indexes.
        kept_bytes: see `open_store_files`.
    """

    def __init__(
        self, filesystem: pafs.FileSystem, store: str, uri: str, manifest: Manifest, kept_bytes: int | None = None
    ) -> None:
        self._filesystem = filesystem
        self._store = store
        self._uri = uri
        self._manifest = manifest
        self._newest, self._reading = manifest, threading.Lock()
        self._max_kept_bytes = _MAX_KEPT_BYTES if kept_bytes is None else kept_bytes
        self._kept: OrderedDict[str, _FileInMemory] = OrderedDict()
        self._folders: dict[str, set[str]] = defaultdict(set)
        self._files: dict[str, list[str]] = defaultdict(list)
        for path in manifest.files:
            folder, _, name = path.rpartition("/")
            self._files[folder].append(name)
            while folder:
                parent, _, name = folder.rpartition("/")
                self._folders[parent].add(name)
                folder = parent

    def folders_in(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder; see StoreFiles."""
        return sorted(self._folders.get(folder, ()))

    def files_in(self, folder: str, is_wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the names of the files in a folder; see StoreFiles."""
        return sorted(filter(is_wanted, self._files.get(folder, ())))

    def has_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return folder in self._files or folder in self._folders

    def size_of(self, path: str) -> int:
        """Return the size of a file, bytes; see StoreFiles."""
        return self._entry(path).size

    def data_end(self, path: str) -> int:
        """Return the end of the shipped bytes of a file; see StoreFiles."""
        return self._entry(path).shipped

    def has_data(self, path: str) -> bool:
        """Return whether a file has anything but zeros; see StoreFiles.

        The agent ships a file that a broker writes to up to its last byte that is not zero; other files it ships whole.
        """
        entry = self._entry(path)
        return _has_data(self.open(path)) if entry.is_sealed else entry.shipped > 0

    def open(self, path: str, end: int | None = None) -> IndexedFile:
        """Open a file; see StoreFiles."""
        if path in self._kept:
            self._kept.move_to_end(path)
            return self._kept[path]
        entry = self._entry(path)
        file: RemoteSegment
        if entry.is_sealed:
            file = RemoteFile(self._filesystem, f"{self._store}/{path}")
        else:
            file = PartedFile(self._filesystem, self._store, path, entry, self._newer_entry)
        if entry.shipped > MAX_WHOLE_BYTES:
            if entry.is_sealed and file.size() != entry.size:
                found = file.size()
                file.close()
                raise self._changed(path, entry.size, found)
            return _FileReadAhead(file, entry, entry.shipped if end is None else min(end, entry.shipped))
        try:
            data = file.read_at(entry.shipped, 0)
        finally:
            file.close()
        if len(data) < entry.shipped:
            raise self._changed(path, entry.shipped, len(data))
        self._kept[path] = kept = _FileInMemory(data, entry.size)
        while sum(each.kept_bytes for each in self._kept.values()) > self._max_kept_bytes:
            self._kept.popitem(last=False)
        return kept

    def place_of(self, path: str) -> str:
        """Return the URI of a file or folder."""
        return f"{self._uri.rstrip('/')}/{path}"

    def _newer_entry(self, entry: ShippedFile) -> ShippedFile:
        """Return the entry of a file of which a part is missing, from a newer manifest."""
        with self._reading:
            if self._newest.files.get(entry.name) == entry:
                manifest = read_shipped_manifest(self._filesystem, self._store, FILES_MANIFEST)
                self._newest = manifest or replace(self._newest, files={})
            newer = self._newest.files.get(entry.name)
        if newer is None:
            raise FileNotFoundError(f"{self.place_of(entry.name)} does not exist")
        return newer

    def _changed(self, path: str, expected: int, found: int) -> StoreError:
        return StoreError(f"{self.place_of(path)}: expected {expected} bytes, found {found}: the copy was changed")

    def _entry(self, path: str) -> ShippedFile:
        entry = self._manifest.files.get(path)
        if entry is None:
            raise FileNotFoundError(f"{self.place_of(path)} does not exist")
        return entry


class _FileInMemory:
    """Bytes of a small file; those that were not shipped are a hole."""

    def __init__(self, data: Array, size: int) -> None:
        self._data = data
        self._size = size

    @property
    def kept_bytes(self) -> int:
        """Number of bytes that are in memory."""
        return len(self._data)

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; see SegmentFile."""
        count = max(0, min(len(window), self._size - position))
        data = self._data[position : position + count]
        window[: len(data)] = data
        window[len(data) : count] = 0
        return count

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return self._size

    def next_data(self, position: int) -> int | None:
        """Return the first position that is not in a hole, or None; see IndexedFile."""
        return position if position < len(self._data) else None

    def next_hole(self, position: int) -> int:
        """Return the first position that is in a hole, or the end of the file; see IndexedFile."""
        return max(position, len(self._data))

    def close(self) -> None:
        """Do nothing, because the file may be opened again."""


class _FileReadAhead:
    """Large file, which is read ahead as far as it was shipped; the rest is a hole."""

    def __init__(self, file: RemoteSegment, entry: ShippedFile, end: int) -> None:
        self._file = file
        self._ahead = ReadAhead(file)
        self._shipped, self._size, self._end = entry.shipped, entry.size, end

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; see SegmentFile."""
        return self._ahead.read_into(window, position, self._end)

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return self._size

    def next_data(self, position: int) -> int | None:
        """Return the first position that is not in a hole, or None; see IndexedFile."""
        return position if position < self._shipped else None

    def next_hole(self, position: int) -> int:
        """Return the first position that is in a hole, or the end of the file; see IndexedFile."""
        return max(position, self._shipped)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_all(file: SegmentFile, start: int, end: int) -> Array:
    """Return a range of a file, without what is after its end.

    Args:
        file: the open file.
        start: position of the first byte.
        end: position after the last byte.
    """
    window = np.empty(max(0, end - start), np.uint8)
    return window[: file.read_into(window, start)]


def find_data(file: IndexedFile, start: int, end: int) -> int | None:
    """Return the start of the first window of a file that is not all zeros, or None.

    Args:
        file: the open file.
        start: position at which the search begins.
        end: position at which the search ends.
    """
    window = np.empty(1 << 16, np.uint8)
    while start < end:
        found = file.next_data(start)
        if found is None or found >= end:
            return None
        count = file.read_into(window[: min(len(window), end - found)], found)
        if count == 0:
            return None
        if window[:count].any():
            return found
        start = found + count
    return None


def _has_data(file: IndexedFile) -> bool:
    try:
        return find_data(file, 0, _MAX_SEARCHED_BYTES) is not None
    finally:
        file.close()
