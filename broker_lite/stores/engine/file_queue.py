"""A run of bytes kept in files of one size, each named by the offset of its first byte.

The CommitLog is one such run, and every ConsumeQueue is. Bytes are appended at the end; the next file is created when
the last one is full; nothing ever crosses from one file into the next. Source:
org.apache.rocketmq.store.MappedFileQueue.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from commitlake.broker_lite.stores.engine.errors import FileSizeError, StoreFilesError
from commitlake.broker_lite.stores.engine.mapped_file import MappedFile, Mappings
from commitlake.schemas.layouts.segments import is_segment_name, segment_name
from commitlake.schemas.store_files import files_in, remove_file, sync_folder


class FileQueue:
    """The files of one folder.

    Attributes:
        folder: where they are; created with the first file.
        file_size: size of each, in bytes.
        start: offset of the first byte.
        end: offset behind the last byte that was appended.
        synced: offset up to which the bytes are known to be on the disk.
    """

    def __init__(self, folder: Path, file_size: int, size_option: str, mappings: Mappings) -> None:
        """Find the files of a folder; until `truncate` is called, all of them count as full.

        Args:
            folder: where the files are, or will be.
            file_size: size of each.
            size_option: the option that sets it, for the error message.
            mappings: what keeps the number of mapped files down.

        Raises:
            StoreFilesError: for a file of another size, or where a file is missing between two.
            UnsafeFileError: for a link, or something else that is no file, with the name of one.
        """
        self.folder = folder
        self.file_size = file_size
        self._mappings = mappings
        self._files: list[MappedFile] = []
        self._folder_synced = True
        self.start = 0
        self._load(size_option)
        self.end = self.start + len(self._files) * file_size
        self.synced = self.end

    def _load(self, size_option: str) -> None:
        # As numbers: a broker may have written them in other digits than ASCII's.
        names = sorted(files_in(self.folder, is_segment_name, below=self._mappings.root), key=int)
        if names and (self.folder / names[-1]).lstat().st_size == 0:
            # A crash between the file's creation and its growth; RocketMQ deletes it too.
            remove_file(self.folder / names.pop(), below=self._mappings.root)
        for number, name in enumerate(names):
            path = self.folder / name
            offset = int(name)
            self.start = offset if number == 0 else self.start
            if (size := path.lstat().st_size) != self.file_size:
                message = f"{path}: expected a size of {self.file_size} bytes, found {size}"
                raise FileSizeError(message, size_option, size if number == 0 else None)
            if offset != (expected := self.start + number * self.file_size):
                raise StoreFilesError(f"{path}: expected the file {segment_name(expected)} first, found it missing")
            self._files.append(MappedFile(path, size, self._mappings))

    @property
    def is_empty(self) -> bool:
        """Whether there is no file."""
        return not self._files

    @property
    def file_starts(self) -> range:
        """The offsets of the files' first bytes."""
        return range(self.start, self.start + len(self._files) * self.file_size, self.file_size)

    @property
    def room(self) -> int:
        """Bytes left in the files that are there: 0 where the next append creates one."""
        return self.start + len(self._files) * self.file_size - self.end

    def file_end(self, offset: int) -> int:
        """The offset at which the file of an offset ends, and the next one begins."""
        return offset - (offset - self.start) % self.file_size + self.file_size

    def locate(self, offset: int) -> tuple[mmap.mmap, int]:
        """The memory that holds an offset below `end`, and the position in it."""
        number, position = divmod(offset - self.start, self.file_size)
        return self._files[number].memory, position

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of one file."""
        memory, position = self.locate(offset)
        return memory[position : position + size]

    def begin_at(self, offset: int, *, exactly: bool = False) -> None:
        """Let an empty queue begin with the file that holds `offset`; the bytes before it are zeros.

        Args:
            offset: what the first append is not before.
            exactly: begin with a file whose first byte this is, wherever others begin.
        """
        assert self.is_empty, "a queue with files cannot begin elsewhere"
        self.start = offset if exactly else offset - offset % self.file_size
        self.end = self.synced = self.start

    def prepare(self, size: int) -> None:
        """Have room for so many bytes.

        Raises:
            DiskFullError: if the disk has none for the next file.
        """
        while self.start + len(self._files) * self.file_size - self.end < size:
            self._add_file()

    def reserve(self) -> tuple[mmap.mmap, int]:
        """The memory and the position at which the next byte goes; the caller then moves `end`."""
        position = self.end - self.start - (len(self._files) - 1) * self.file_size
        if 0 <= position < self.file_size:  # in the last file, as nearly always
            return self._files[-1].memory, position
        self.prepare(1)
        return self.locate(self.end)

    def append(self, data: bytes | bytearray) -> None:
        """Append bytes that fit into the room left in the last file, or into a whole new one."""
        memory, position = self.reserve()
        memory[position : position + len(data)] = data
        self.end += len(data)

    def _add_file(self) -> None:
        path = self.folder / segment_name(self.start + len(self._files) * self.file_size)
        self._files.append(MappedFile.create(path, self.file_size, self._mappings))
        self._folder_synced = False

    def truncate(self, offset: int) -> None:
        """Let the queue end at an offset; files behind it are deleted, other bytes stay as they are."""
        self._delete_from(max(0, -(-(offset - self.start) // self.file_size)))
        self.end = max(offset, self.start)
        self.synced = min(self.synced, self.end)

    def clear_rest(self) -> None:
        """Make zeros of what stands behind the end: what follows will not be taken for a part of the queue."""
        if self.room:
            number, position = divmod(self.end - self.start, self.file_size)
            self._files[number].clear_from(position)

    def sync(self, offset: int) -> None:
        """Put the bytes up to `offset` on the disk; may run while another thread appends."""
        if offset <= self.synced:
            return
        first = (self.synced - self.start) // self.file_size
        last = (offset - 1 - self.start) // self.file_size
        if not self._folder_synced:
            # A new file's name is not on the disk before its folder is; one may come meanwhile.
            self._folder_synced = True
            try:
                sync_folder(self.folder)
            except OSError:
                self._folder_synced = False
                raise
        for file in self._files[first : last + 1]:
            file.sync()
        self.synced = offset

    def modified_seconds(self) -> list[float]:
        """When each file was last written to, s since 1970."""
        return [file.path.lstat().st_mtime for file in self._files]

    def delete_first(self, count: int) -> None:
        """Remove the oldest files; what is left begins behind them."""
        for file in self._files[:count]:
            file.delete()
        del self._files[:count]
        self.start += count * self.file_size
        self.synced = max(self.synced, self.start)

    def unmap(self) -> None:
        """Give the memory of all files back."""
        for file in self._files:
            file.unmap()

    def delete(self) -> None:
        """Remove all files: the queue is then new and empty."""
        self._delete_from(0)
        self.start = self.end = self.synced = 0

    def _delete_from(self, keep: int) -> None:
        # The newest first: a process that is killed in between leaves a shorter queue, not one with a file missing.
        while len(self._files) > keep:
            self._files[-1].delete()
            del self._files[-1]
