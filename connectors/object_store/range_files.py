"""Common parts of the filesystems for reading: files that are read by ranges, and refusal of all changes."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import Any, NoReturn

import pyarrow.fs as pafs


class ReadOnlyHandler(pafs.FileSystemHandler):  # type: ignore[misc]  # Arrow has no types
    """Handler of a filesystem; the methods that change it are refused."""

    def normalize_path(self, path: str) -> str:
        """Return the path that is used in requests."""
        return path

    def _refuse(self, *arguments: Any, **named: Any) -> NoReturn:
        raise NotImplementedError("this filesystem is only read")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


class RangeFile(io.RawIOBase, ABC):
    """A file with a position; a subclass reads from it."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of bytes."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Set the position of the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def end_of(self, size: int | None) -> int:
        """Return where a read of at most so many bytes ends; None or a negative number for all."""
        return self.size if size is None or size < 0 else min(self.size, self._position + size)
