"""A folder of queue files that is being written, until all of them are on disk and it is renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from commitlake.schemas.layouts.segments import segment_name
from commitlake.schemas.store_files import FILE_MODE, make_folders, remove_tree, sync_folder


class QueueFolder:
    """Consecutive files of one size.

    Attributes:
        path: path of the folder.
        files: number of files.
        start: byte position of the first file in the queue; each other file begins a multiple of the size later.
    """

    def __init__(self, path: Path, file_size: int) -> None:
        """Create an empty folder, and remove what an earlier run has left there."""
        remove_tree(path)
        make_folders(path)
        self.path = path
        self.files = 0
        self.start = 0
        self._file_size = file_size

    def clear(self) -> None:
        """Delete the files."""
        for path in self.path.iterdir():
            path.unlink()
        self.files = 0

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes of the queue, which may span several files."""
        for start, at, size in self._pieces(position, len(data)):
            self._write(start, at, data[:size])
            data = data[size:]

    def read(self, position: int, size: int) -> bytes:
        """Read bytes of the queue that were written before."""
        return b"".join(self._read(*piece) for piece in self._pieces(position, size))

    def _pieces(self, position: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield pieces that lie in one file each: start of the file, byte in it, and size."""
        while size:
            at = (position - self.start) % self._file_size
            piece = min(size, self._file_size - at)
            yield position - at, at, piece
            position += piece
            size -= piece

    def _write(self, start: int, at: int, data: memoryview) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path / segment_name(start), flags, FILE_MODE)
        try:
            if os.fstat(descriptor).st_size != self._file_size:  # a new file
                os.truncate(descriptor, self._file_size)
                self.files += 1
            written = 0
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], at + written)
        finally:
            os.close(descriptor)

    def _read(self, start: int, at: int, size: int) -> bytes:
        descriptor = os.open(self.path / segment_name(start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size, at)
        finally:
            os.close(descriptor)

    def finish(self) -> None:
        """Sync files and folder to disk."""
        for path in self.path.iterdir():
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        sync_folder(self.path)
