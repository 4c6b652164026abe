"""Interfaces to the files of a store: its segments, and the files of its queues and indexes by their paths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from commitlake.connectors.numpy_arrays import Array


@dataclass(frozen=True, slots=True)
class Segment:
    """File of a log, as it was listed.

    Attributes:
        path: path or URI that opens it.
        base_offset: physical offset of its first byte, from its name.
        file_size: size of the file when it was listed, bytes.
    """

    path: str
    base_offset: int
    file_size: int


class SegmentFile(Protocol):
    """Open segment file of a log."""

    def read_into(self, window: Array, position: int) -> int:
        """Fill `window` from a position of the file; return the bytes read, fewer only at the end of the file."""
        ...

    def size(self) -> int:
        """Return the size of the file, bytes."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class IndexedFile(SegmentFile, Protocol):
    """Open file of a queue or an index, which may be sparse."""

    def next_data(self, position: int) -> int | None:
        """Return the first position at or after `position` that is not in a hole, or None."""
        ...

    def next_hole(self, position: int) -> int:
        """Return the first position at or after `position` that is in a hole, or the end of the file."""
        ...


class StoreFiles(Protocol):
    """Files of a store, addressed by paths relative to the store's folder, such as `consumequeue/orders/3`."""

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
        """Return a position after which a file has only zeros: where a copy's shipped bytes end, or the file size.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def has_data(self, path: str) -> bool:
        """Return whether a file has any nonzero byte; for a shipped copy, usually the manifest alone shows this.

        Raises:
            FileNotFoundError: if it does not exist.
        """
        ...

    def open(self, path: str, read_end: int | None = None) -> IndexedFile:
        """Open a file of the store for reading.

        Args:
            path: the file.
            read_end: position before which most reads will end, so that no more is read ahead; None for the file's end.

        Raises:
            FileNotFoundError: if it does not exist.
            MissingObjectError: if a copy lacks its object.
            StoreError: if a copy lacks the bytes that the manifest names; also raised when the file is read.
            UnsafeFileError: if it is a link or not a regular file.
        """
        ...

    def location_of(self, path: str) -> str:
        """Return the path or URI of a file or folder, for messages."""
        ...
