"""The entries of a ConsumeQueue by their numbers, whatever of its files is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from connectors.facts.kernel import Array
from schemas.layouts.consumequeue import ENTRY, PRE_BLANK
from schemas.layouts.segments import parse_segment_name, segment_name

FOLDER = "consumequeue"
ENTRY_DTYPE = np.dtype(ENTRY.numpy_fields)


class QueueFiles:
    """The files of one queue.

    Attributes:
        topic: its topic.
        queue_id: its number there.
        folder: where they are.
        file_size: bytes that each should have.
        starts: byte position of the first entry of each file, rising.
    """

    def __init__(self, root: Path, topic: str, queue_id: int, file_size: int) -> None:
        """List the files; a queue without a folder has none."""
        self.topic = topic
        self.queue_id = queue_id
        self.folder = root / FOLDER / topic / str(queue_id)
        self.file_size = file_size
        try:
            names = [entry.name for entry in os.scandir(self.folder) if entry.is_file()]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        found = (parse_segment_name(name) for name in names)
        self.starts = sorted(start for start in found if start is not None and start % file_size == 0)
        self._known = frozenset(self.starts)

    @property
    def name(self) -> str:
        """Topic and queue id."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def first_number(self) -> int:
        """The number of the first entry of the first file, 0 where there is none."""
        return self.starts[0] // ENTRY.size if self.starts else 0

    @property
    def end_number(self) -> int:
        """The number behind the last entry that the last file has room for."""
        return (self.starts[-1] + self.file_size) // ENTRY.size if self.starts else 0

    def place_of(self, number: int) -> tuple[str, int]:
        """The file of an entry, from the store's folder on, and its byte there."""
        position = number * ENTRY.size
        start = position - position % self.file_size
        return f"{FOLDER}/{self.topic}/{self.queue_id}/{segment_name(start)}", position - start

    def pieces(self, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Ranges of numbers that lie in one file each, and whether that file is there."""
        in_file = self.file_size // ENTRY.size
        while first < end:
            stop = min(end, (first // in_file + 1) * in_file)
            yield first, stop, first // in_file * self.file_size in self._known
            first = stop

    def read(self, first: int, end: int) -> Array:
        """Entries of one file; what the file does not have is zeros.

        Args:
            first: number of the first.
            end: number behind the last; in the same file.
        """
        position = first * ENTRY.size
        start = position - position % self.file_size
        wanted = (end - first) * ENTRY.size
        try:
            descriptor = os.open(self.folder / segment_name(start), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return np.zeros(end - first, ENTRY_DTYPE)
        try:
            data = os.pread(descriptor, wanted, position - start)
        finally:
            os.close(descriptor)
        entries: Array = np.frombuffer(data.ljust(wanted, b"\0"), ENTRY_DTYPE)
        return entries

    def written_end(self) -> int:
        """The number behind the last valid entry, by halving the last file that has one."""
        for start in reversed(self.starts):
            first = start // ENTRY.size
            low, high = first, first + self.file_size // ENTRY.size
            while low < high:
                middle = (low + high) // 2
                if is_valid(self.read(middle, middle + 1))[0]:
                    low = middle + 1
                else:
                    high = middle
            if low > first:
                return low
        return self.first_number


def is_valid(entries: Array) -> Array:
    """Which entries a broker takes for written."""
    valid: Array = (entries["physical_offset"] >= 0) & (entries["size"] > 0)
    return valid


def is_filler(entries: Array) -> Array:
    """Which entries stand for no message, at the head of a queue that was made late."""
    filler: Array = (
        (entries["physical_offset"] == PRE_BLANK.physical_offset)
        & (entries["size"] == PRE_BLANK.size)
        & (entries["tags_code"] == PRE_BLANK.tags_code)
    )
    return filler
