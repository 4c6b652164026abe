"""Files of a fixed size that are read and written through memory, as RocketMQ's are.

A file is created at its full size and sparse: the bytes are zeros, and take no room until they are written. What was
written through a mapping is the kernel's: it survives the process's death, though not the machine's, until it is
synced.

A write to a mapped page for which the disk has no room kills the process (SIGBUS); a file is therefore only created
where the disk has room for all of it. So does any access behind the end of a file that another process has cut: the
size is looked at whenever the memory is asked for, and only a cut between that and the access is not noticed.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from commitlake.broker_lite.stores.engine.errors import DiskFullError, FileCutError, StoreFilesError
from commitlake.schemas.store_files import FILE_MODE, create_file, make_folders, open_file, open_parent, remove_file

DEFAULT_MAX_MAPPED_FILES = 256
"""Python's mmap holds a file descriptor for as long as it lives; processes often have 1,024."""

_CLEARED_AT_ONCE = 1 << 20

_NO_FILES_WITHOUT_A_NAME = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EXDEV})


class Mappings:
    """Keeps the number of files that are mapped at once within a limit: the longest mapped goes first.

    Attributes:
        root: the store's folder, below which no link is followed; None for files outside a store.
    """

    def __init__(self, limit: int = DEFAULT_MAX_MAPPED_FILES, root: Path | None = None) -> None:
        self.root = root
        self._limit = limit
        self._mapped: dict[MappedFile, None] = {}

    def add(self, file: MappedFile) -> None:
        """Note that a file was mapped; unmap the oldest where there are too many."""
        self._mapped[file] = None
        if len(self._mapped) > self._limit:
            next(iter(self._mapped)).unmap()

    def discard(self, file: MappedFile) -> None:
        """Note that a file is not mapped any more."""
        self._mapped.pop(file, None)

    def unmap_all(self) -> None:
        """Unmap every file."""
        for file in list(self._mapped):
            file.unmap()


class MappedFile:
    """One file of a fixed size, mapped when it is first used.

    Attributes:
        path: where it is.
        size: its size in bytes.
    """

    __slots__ = ("_mappings", "_memory", "path", "size")

    def __init__(self, path: Path, size: int, mappings: Mappings) -> None:
        """Describe a file that is there already; see `create`."""
        self.path = path
        self.size = size
        self._mappings = mappings
        self._memory: mmap.mmap | None = None

    @classmethod
    def create(cls, path: Path, size: int, mappings: Mappings) -> MappedFile:
        """Create a file of zeros.

        Raises:
            DiskFullError: if the disk does not have this much room.
            StoreFilesError: if there is a file or folder of this name.
            UnsafeFileError: if a part of its path is a link.
        """
        make_folders(path.parent, below=mappings.root)
        check_disk(path.parent, size)
        try:
            if not _appear_whole(path, size, mappings.root or path.parent):
                descriptor = create_file(path, below=mappings.root, replace=False)
                try:
                    os.ftruncate(descriptor, size)
                finally:
                    os.close(descriptor)
        except FileExistsError:
            raise StoreFilesError(f"{path}: expected no file of this name yet, found one") from None
        return cls(path, size, mappings)

    @property
    def memory(self) -> mmap.mmap:
        """The file's bytes. Do not keep it: the file may be unmapped at the next use of another.

        Raises:
            FileCutError: if the file is shorter than it was.
            UnsafeFileError: if it is a link, or has several names.
        """
        memory = self._memory
        if memory is None:
            descriptor = self._open()
            try:
                memory = self._memory = mmap.mmap(descriptor, self.size)
            finally:
                os.close(descriptor)
            self._mappings.add(self)
        elif memory.size() < self.size:  # of the file, not of the mapping
            raise self._cut(memory.size())
        return memory

    def _open(self) -> int:
        descriptor = open_file(self.path, os.O_RDWR, below=self._mappings.root)
        if (size := os.fstat(descriptor).st_size) < self.size:
            os.close(descriptor)
            raise self._cut(size)
        return descriptor

    def _cut(self, size: int) -> FileCutError:
        return FileCutError(
            f"{self.path}: expected {self.size} bytes, found {size}: another process has cut it. Stop the broker, and "
            "look at the store with 'commitlake verify'"
        )

    def clear_from(self, position: int) -> None:
        """Make zeros of everything from a position on; what was never written is not touched, and stays sparse."""
        descriptor = self._open()
        try:
            for start, end in _written_stretches(descriptor, position, self.size):
                self._clear(start, end)
        finally:
            os.close(descriptor)

    def _clear(self, start: int, end: int) -> None:
        for at in range(start, end, _CLEARED_AT_ONCE):
            stop = min(at + _CLEARED_AT_ONCE, end)
            if self.memory[at:stop].strip(b"\0"):
                self.memory[at:stop] = bytes(stop - at)

    def sync(self) -> None:
        """Put everything written so far on the disk; other threads run meanwhile, and may write."""
        descriptor = self._open()
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def unmap(self) -> None:
        """Give the memory back; what was written stays written."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
            self._mappings.discard(self)

    def delete(self) -> None:
        """Remove the file."""
        self.unmap()
        remove_file(self.path, below=self._mappings.root)


def _appear_whole(path: Path, size: int, below: Path) -> bool:
    """Create a file that has its size from the first moment: one of another size is refused when a store is opened.

    Returns:
        False where filesystem or system cannot: a process that is killed in between leaves an empty file there.
    """
    if not hasattr(os, "O_TMPFILE"):
        return False
    with open_parent(path, below) as folder:
        try:
            descriptor = os.open(".", os.O_RDWR | os.O_TMPFILE, FILE_MODE, dir_fd=folder)
            try:
                os.ftruncate(descriptor, size)
                # With a folder given it is linkat, which follows the link to the file that has no name yet.
                os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder, follow_symlinks=True)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _NO_FILES_WITHOUT_A_NAME:
                return False
            raise
    return True


def _written_stretches(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where a sparse file may hold other bytes than zeros."""
    while start < end:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # nothing was written from here to the end
        hole = os.lseek(descriptor, start, os.SEEK_HOLE)
        if start < end:
            yield start, min(hole, end)
        start = hole


def check_disk(folder: Path, size: int) -> None:
    """Make sure that a new file has room.

    Raises:
        DiskFullError: if the disk of an existing folder has less than `size` bytes left.
    """
    disk = os.statvfs(folder)
    if (free := disk.f_bavail * disk.f_frsize) < size:
        raise DiskFullError(f"{folder}: expected {size} bytes free for a new file, found {free}")
