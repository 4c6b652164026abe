"""Files that are read by ranges."""

from __future__ import annotations

import io
import sys
import threading
from abc import ABC, abstractmethod


class RangeFile(io.RawIOBase, ABC):
    """A file that is read by ranges, in several threads, and also as a file with a position."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0
        self._first_read = threading.Lock()  # never released

    @abstractmethod
    def size(self) -> int:
        """Return the number of bytes."""

    @abstractmethod
    def read_at(self, size: int, start: int) -> bytes:
        """Read from a position; fewer bytes only at the end of the file.

        Args:
            size: maximum number of bytes.
            start: the position.
        """

    def is_first_read(self) -> bool:
        """Return True once: a reader that has no bytes of the file yet may continue with a newer version of it."""
        return self._first_read.acquire(blocking=False)

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
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size()}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read from the position; None or a negative number for all that follows."""
        data = self.read_at(sys.maxsize if size is None or size < 0 else size, self._position)
        self._position += len(data)
        return data
