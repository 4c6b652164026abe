"""Interface to the files of queues and indexes by their paths in a store, and its implementation for a disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from commitlake.connectors.log_format.files import IndexedFile, SegmentFile
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.segment_files import LocalFile
from commitlake.schemas.safe_store_files import files_in, folders_in

MAX_FILE_BYTES = (1 << 31) - 1
"""Largest size of a file of a queue or an index, because a broker computes it as an int."""


class MissingObjectError(StoreError):
    """A file is named as complete in a copy's manifest, but its object is missing."""


class LocalStoreFiles:
    """Files of a store on a local disk, of which only the top-level folders may be symbolic links."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def folders_in(self, folder: str) -> list[str]:
        """Return the sorted names of the folders in a folder."""
        return folders_in(self._root / folder, trusted_root=self._top_folder(folder))

    def files_in(self, folder: str, is_wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
        """Return the sorted names of the files in a folder that match a filter."""
        return files_in(self._root / folder, is_wanted, trusted_root=self._top_folder(folder))

    def has_folder(self, folder: str) -> bool:
        """Return whether a folder exists."""
        return (self._root / folder).is_dir()

    def size_of(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return (self._root / path).lstat().st_size

    def data_end(self, path: str) -> int:
        """Return the size of a file; only an open file shows whether it ends in a hole, that is, in zeros."""
        return self.size_of(path)

    def has_data(self, path: str) -> bool:
        """Return whether a file has a byte that is not zero."""
        return has_data(self.open(path))

    def open(self, path: str, read_end: int | None = None) -> LocalFile:  # noqa: ARG002 (nothing is read ahead)
        """Open a file of the store for reading."""
        return LocalFile(self.location_of(path), self._top_folder(path))

    def location_of(self, path: str) -> str:
        """Return the path of a file or folder."""
        return str(self._root / path)

    def _top_folder(self, path: str) -> Path:
        return self._root / path.partition("/")[0]


def read_range(file: SegmentFile, start: int, end: int) -> Array:
    """Return a range of a file, shortened to the end of the file.

    Args:
        file: the open file.
        start: position of the first byte.
        end: position after the last byte.
    """
    window = np.empty(max(0, end - start), np.uint8)
    return window[: file.read_into(window, start)]


def find_nonzero_window(file: IndexedFile, start: int, end: int) -> int | None:
    """Return the start of the first window in a range of a file that is not all zeros; None if there is none.

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
        # A file system without holes reports all of the file as data, so the bytes themselves are examined, too.
        count = file.read_into(window[: min(len(window), end - found)], found)
        if count == 0:
            return None
        if window[:count].any():
            return found
        start = found + count
    return None


def has_data(file: IndexedFile) -> bool:
    """Return whether a file has any nonzero byte, and close the file."""
    try:
        return find_nonzero_window(file, 0, MAX_FILE_BYTES) is not None
    finally:
        file.close()
