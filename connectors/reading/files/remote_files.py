"""Files on filesystems other than the local one, for reads by several threads at once."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.storage.filesystem import StorageHandler
from commitlake.connectors.storage.storage import RangeFile


class RemoteFile:
    """Open remote file that several threads can read. If closed during reads, it closes when the last read ends.

    Raises:
        FileNotFoundError: if it does not exist.
    """

    def __init__(self, filesystem: pafs.FileSystem, path: str) -> None:
        self._file = _open_file(filesystem, path)
        self._lock = threading.Lock()
        self._readers, self._is_closed = 0, False

    def read_at(self, size: int, position: int) -> Array:
        """Return bytes from a position of the file, fewer than `size` only at the end of the file."""
        # Arrow's file must not be closed during a read, which would fail in another thread or crash.
        with self._lock:
            self._readers += 1
        try:
            return np.frombuffer(self._file.read_at(size, position), np.uint8)
        finally:
            with self._lock:
                self._readers -= 1
                self._close_if_unused()

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; return the number of bytes read."""
        data = self.read_at(len(window), position)
        window[: len(data)] = data
        return len(data)

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return int(self._file.size())

    def close(self) -> None:
        """Close the file, or let the last thread that reads it close it."""
        with self._lock:
            self._is_closed = True
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._is_closed and not self._readers:
            self._file.close()


def _open_file(filesystem: pafs.FileSystem, path: str) -> RangeFile | pa.NativeFile:
    if isinstance(filesystem, pafs.PyFileSystem) and isinstance(filesystem.handler, StorageHandler):
        return filesystem.handler.open_for_range_reads(path)  # Arrow's wrapper would let one thread read at a time
    return filesystem.open_input_file(path)
