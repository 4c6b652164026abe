"""Sequence of bytes, stored in files of equal size that are named by the offset of their first byte.

The CommitLog is one such sequence, and every ConsumeQueue is. Bytes are appended at the end; the next file is created
when the last one is full; no append crosses the end of a file. Source: org.apache.rocketmq.store.MappedFileQueue.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from commitlake.broker_lite.errors import FileSizeError, StoreFilesError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, MappedFiles
from commitlake.schemas.layouts.segment_names import is_segment_name, segment_name
from commitlake.schemas.safe_store_files import files_in, remove_file, sync_folder


class FileQueue:
    """Files of one folder that together contain a sequence of bytes.

    Attributes:
        folder: folder of the files; created with the first file.
        file_size: size of each file in bytes.
        start: offset of the first byte in the files.
        end: offset of the end of the appended bytes.
        synced: offset up to which the bytes are known to be on disk.
    """

    def __init__(self, folder: Path, file_size: int, size_option: str, mappings: MappedFiles) -> None:
        """Open the files of a folder; until `truncate` is called, all of them count as fully written.

        Args:
            folder: folder of the files; need not exist.
            file_size: size of each file.
            size_option: option that sets the size, for error messages.

        Raises:
            StoreFilesError: if a file has another size, or one between two others is missing.
            UnsafeFileError: if a file is a symbolic link or not a regular file.
        """
        self.folder = folder
        self.file_size = file_size
        self._mappings = mappings
        self._files: list[MappedFile] = []
        self._folder_synced = True
        self.start = 0
        self._load_files(size_option)
        self.end = self.start + len(self._files) * file_size
        self.synced = self.end

    def _load_files(self, size_option_name: str) -> None:
        # Compare them as numbers: a broker may have written them in non-ASCII digits.
        names = sorted(files_in(self.folder, is_segment_name, trusted_root=self._mappings.root), key=int)
        if names and (self.folder / names[-1]).lstat().st_size == 0:
            # The process crashed between the file's creation and its growth; RocketMQ deletes it, too.
            remove_file(self.folder / names.pop(), trusted_root=self._mappings.root)
        for number, name in enumerate(names):
            path = self.folder / name
            offset = int(name)
            self.start = offset if number == 0 else self.start
            if (size := path.lstat().st_size) != self.file_size:
                message = f"{path}: expected a size of {self.file_size} bytes, found {size}"
                raise FileSizeError(message, size_option_name, size if number == 0 else None)
            if offset != (expected := self.start + number * self.file_size):
                raise StoreFilesError(f"{path}: the file {segment_name(expected)}, which belongs before it, is missing")
            self._files.append(MappedFile(path, size, self._mappings))

    @property
    def is_empty(self) -> bool:
        """True if there is no file."""
        return not self._files

    @property
    def file_starts(self) -> range:
        """Start offsets of the files."""
        return range(self.start, self.start + len(self._files) * self.file_size, self.file_size)

    @property
    def free_bytes(self) -> int:
        """Number of bytes that still fit in the existing files; 0 if the next append creates a file."""
        return self.start + len(self._files) * self.file_size - self.end

    def file_end(self, offset: int) -> int:
        """Return the offset of the end of the file that contains an offset."""
        return offset - (offset - self.start) % self.file_size + self.file_size

    def locate(self, offset: int) -> tuple[mmap.mmap, int]:
        """Return the mapped file that has the byte at an offset, and the byte's position in it."""
        number, position = divmod(offset - self.start, self.file_size)
        return self._files[number].memory, position

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from an offset on, all within one file."""
        memory, position = self.locate(offset)
        return memory[position : position + size]

    def set_start(self, offset: int, *, starts_file_at_offset: bool = False) -> None:
        """Set the offset at which an empty queue starts; earlier bytes of its first file remain zeros.

        Args:
            offset: offset of the first append.
            starts_file_at_offset: let the first file begin at this offset, instead of at a multiple of the file size.
        """
        assert self.is_empty, "expected a queue without files"
        self.start = offset if starts_file_at_offset else offset - offset % self.file_size
        self.end = self.synced = self.start

    def create_files_for(self, size: int) -> None:
        """Create files until a number of bytes fits at the end.

        Raises:
            DiskFullError: if the disk has no room for the next file.
        """
        while self.start + len(self._files) * self.file_size - self.end < size:
            self._add_file()

    def locate_end(self) -> tuple[mmap.mmap, int]:
        """Return the mapped file and the position in it of the next byte; the caller writes and then advances `end`."""
        position = self.end - self.start - (len(self._files) - 1) * self.file_size
        if 0 <= position < self.file_size:  # the usual case: in the last file
            return self._files[-1].memory, position
        self.create_files_for(1)
        return self.locate(self.end)

    def append(self, data: bytes | bytearray) -> None:
        """Append bytes, all in one file: they must fit in the rest of the last file, or in a new file."""
        memory, position = self.locate_end()
        memory[position : position + len(data)] = data
        self.end += len(data)

    def _add_file(self) -> None:
        path = self.folder / segment_name(self.start + len(self._files) * self.file_size)
        self._files.append(MappedFile.create(path, self.file_size, self._mappings))
        self._folder_synced = False

    def truncate(self, offset: int) -> None:
        """Set the end to an offset; later files are deleted, and bytes after the end are not changed."""
        # The file that contains the offset stays; it may also end there.
        self._delete_newest_files(max(0, -(-(offset - self.start) // self.file_size)))
        self.end = max(offset, self.start)
        self.synced = min(self.synced, self.end)

    def clear_after_end(self) -> None:
        """Overwrite the bytes after the end with zeros, so that they are not taken for a part of the queue."""
        if self.free_bytes:
            number, position = divmod(self.end - self.start, self.file_size)
            self._files[number].clear_from(position)

    def sync(self, offset: int) -> None:
        """Flush the bytes up to `offset` to disk; may run while another thread appends."""
        if offset <= self.synced:
            return
        # Only the files that were written since the last flush.
        first = (self.synced - self.start) // self.file_size
        last = (offset - 1 - self.start) // self.file_size
        if not self._folder_synced:
            # A new file's name is on disk only after its folder is synced; another thread may add a file meanwhile.
            self._folder_synced = True
            try:
                sync_folder(self.folder)
            except OSError:
                self._folder_synced = False
                raise
        for file in self._files[first : last + 1]:
            file.sync()
        self.synced = offset

    def modification_times(self) -> list[float]:
        """Return the modification time of each file, s since 1970."""
        return [file.path.lstat().st_mtime for file in self._files]

    def delete_oldest_files(self, count: int) -> None:
        """Delete the `count` oldest files, so that the queue starts after them."""
        for file in self._files[:count]:
            file.delete()
        del self._files[:count]
        self.start += count * self.file_size
        self.synced = max(self.synced, self.start)

    def unmap(self) -> None:
        """Unmap the memory of all files."""
        for file in self._files:
            file.unmap()

    def delete(self) -> None:
        """Delete all files, so that the queue is empty, as if new."""
        self._delete_newest_files(0)
        self.start = self.end = self.synced = 0

    def _delete_newest_files(self, kept_count: int) -> None:
        # Newest first: if the process is killed in between, the queue is shorter, but has no gap.
        while len(self._files) > kept_count:
            self._files[-1].delete()
            del self._files[-1]
