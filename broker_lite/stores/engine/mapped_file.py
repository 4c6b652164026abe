"""Files of a fixed size that are read and written through memory, as in RocketMQ.

A file is created sparse at its full size: its bytes are zeros, and use no disk space until they are written. Data
written through a mapping belongs to the kernel: it survives a crash of the process, and after a sync a crash of the
machine.

A write to a mapped page for which the disk has no room kills the process (SIGBUS); a file is therefore created only if
the disk has room for all of it. Access beyond the end of a file that another process has truncated kills it, too: the
size is checked whenever the memory is requested, and only a truncation between the check and the access goes unnoticed.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

from commitlake.broker_lite.errors import DiskFullError, StoreFilesError, StoreUnusableError
from commitlake.schemas.safe_store_files import (
    FILE_MODE,
    create_file,
    make_folders,
    open_file,
    open_parent,
    remove_file,
)

DEFAULT_MAX_MAPPED_FILES = 256
"""Python's mmap keeps a file descriptor open; processes often have a limit of 1,024."""

_CLEARED_AT_ONCE = 1 << 20

_NO_FILES_WITHOUT_A_NAME = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EXDEV})


class MappedFiles:
    """Registry of the files mapped into memory; above a limit, it unmaps the file that was mapped first.

    Attributes:
        root: folder of the store, below which no symbolic link is followed; None for files outside a store.
    """

    def __init__(self, limit: int = DEFAULT_MAX_MAPPED_FILES, root: Path | None = None) -> None:
        self.root = root
        self._limit = limit
        self._mapped: dict[MappedFile, None] = {}

    def add(self, file: MappedFile) -> None:
        """Add a mapped file; unmap the oldest one if the limit is exceeded."""
        self._mapped[file] = None
        if len(self._mapped) > self._limit:
            next(iter(self._mapped)).unmap()

    def discard(self, file: MappedFile) -> None:
        """Remove an unmapped file."""
        self._mapped.pop(file, None)

    def unmap_all(self) -> None:
        """Unmap every file."""
        for file in list(self._mapped):
            file.unmap()


class MappedFile:
    """File of a fixed size, mapped when it is first used.

    Attributes:
        path: path of the file.
        size: size in bytes.
    """

    __slots__ = ("_mappings", "_memory", "path", "size")

    def __init__(self, path: Path, size: int, mappings: MappedFiles) -> None:
        """Open an existing file, which is mapped into memory when it is first used."""
        self.path = path
        self.size = size
        self._mappings = mappings
        self._memory: mmap.mmap | None = None

    @classmethod
    def create(cls, path: Path, size: int, mappings: MappedFiles) -> MappedFile:
        """Create a file of zeros.

        Raises:
            DiskFullError: if the disk does not have enough room.
            StoreFilesError: if a file or folder of this name exists.
            UnsafeFileError: if a part of its path is a symbolic link.
        """
        make_folders(path.parent, trusted_root=mappings.root)
        check_free_space(path.parent, size)
        try:
            if not _create_at_full_size(path, size, mappings.root or path.parent):
                descriptor = create_file(path, trusted_root=mappings.root, may_replace=False)
                try:
                    os.ftruncate(descriptor, size)
                finally:
                    os.close(descriptor)
        except FileExistsError:
            raise StoreFilesError(
                f"{path}: a new file cannot be created, because one of this name exists already"
            ) from None
        return cls(path, size, mappings)

    @property
    def memory(self) -> mmap.mmap:
        """Memory of the file. Do not keep it: the file may be unmapped when another one is used.

        Raises:
            StoreUnusableError: if another process has truncated the file.
            UnsafeFileError: if it is a symbolic link, or has several names.
        """
        memory = self._memory
        if memory is None:
            descriptor = self._open_descriptor()
            try:
                memory = self._memory = mmap.mmap(descriptor, self.size)
            finally:
                os.close(descriptor)
            self._mappings.add(self)
        elif memory.size() < self.size:  # size of the file, not of the mapping
            raise self._truncated_error(memory.size())
        return memory

    def _open_descriptor(self) -> int:
        descriptor = open_file(self.path, os.O_RDWR, trusted_root=self._mappings.root)
        if (size := os.fstat(descriptor).st_size) < self.size:
            os.close(descriptor)
            raise self._truncated_error(size)
        return descriptor

    def _truncated_error(self, size: int) -> StoreUnusableError:
        return StoreUnusableError(
            f"{self.path}: expected {self.size} bytes, found {size}: another process has truncated it. Stop the "
            "broker, and check the store with 'commitlake verify'"
        )

    def clear_from(self, position: int) -> None:
        """Overwrite the bytes from a position on with zeros, but skip holes of a sparse file."""
        descriptor = self._open_descriptor()
        try:
            for start, end in _written_ranges(descriptor, position, self.size):
                self._zero_range(start, end)
        finally:
            os.close(descriptor)

    def _zero_range(self, start: int, end: int) -> None:
        for at in range(start, end, _CLEARED_AT_ONCE):
            stop = min(at + _CLEARED_AT_ONCE, end)
            zeros = bytes(stop - at)
            # Zeros over zeros would still make the page dirty, and take space on the disk.
            if self.memory[at:stop] != zeros:
                self.memory[at:stop] = zeros

    def sync(self) -> None:
        """Flush everything written so far to disk; other threads may write meanwhile."""
        descriptor = self._open_descriptor()
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def unmap(self) -> None:
        """Unmap the file; written bytes stay in the file."""
        if self._memory is not None:
            self._memory.close()
            self._memory = None
            self._mappings.discard(self)

    def delete(self) -> None:
        """Delete the file."""
        self.unmap()
        remove_file(self.path, trusted_root=self._mappings.root)


def _create_at_full_size(path: Path, size: int, root: Path) -> bool:
    """Create a file atomically with its full size, because a file of another size would be refused when opened.

    Returns:
        False if the system cannot do this; then a process killed between two steps leaves an empty file.
    """
    if not hasattr(os, "O_TMPFILE"):
        return False
    with open_parent(path, root) as folder:
        try:
            descriptor = os.open(".", os.O_RDWR | os.O_TMPFILE, FILE_MODE, dir_fd=folder)
            try:
                os.ftruncate(descriptor, size)
                # With dir_fd this is linkat, which follows the link to the file that has no name yet.
                os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=folder, follow_symlinks=True)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _NO_FILES_WITHOUT_A_NAME:
                return False
            raise
    return True


def _written_ranges(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a sparse file that may contain non-zero bytes."""
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


def check_free_space(folder: Path, file_size: int) -> None:
    """Raise an error if the disk has no room for a new file.

    Raises:
        DiskFullError: if the disk of the folder has less than `file_size` bytes free.
    """
    disk = os.statvfs(folder)
    if (free := disk.f_bavail * disk.f_frsize) < file_size:
        raise DiskFullError(f"{folder}: {file_size} bytes of free disk are needed for a new file, found {free}")
