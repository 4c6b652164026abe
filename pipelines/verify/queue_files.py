"""Access to the entries of a queue by number, whichever of its files exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from commitlake.connectors.log_format.files import StoreFiles
from commitlake.connectors.log_format.queues import QueueLayout
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.segment_names import is_segment_name, segment_name

_AT_ONCE = 4096
"""Number of entries that are read at once."""
_EXTENSIONS = "consumequeue_ext"


class QueueFiles:
    """The files of one queue, a ConsumeQueue or a BatchConsumeQueue.

    Attributes:
        topic: the queue's topic.
        queue_id: the queue's number in its topic.
        folder: path of the folder of the files, relative to the store's folder.
        file_size: expected size of each file, bytes.
        layout: the kind of queue.
        origin: start of each file modulo the file size, bytes; 0 for layouts with aligned files.
        starts: byte position of the first entry of each file, rising.
        has_extension: whether the broker keeps a ConsumeQueueExt for it (enableConsumeQueueExt), whose addresses may
            be in place of tag codes.
    """

    def __init__(self, files: StoreFiles, topic: str, queue_id: int, file_size: int, layout: QueueLayout) -> None:
        """List the files of a queue; a queue without a folder has none.

        Args:
            topic: the queue's topic.
            queue_id: the queue's number in its topic.
            file_size: expected size of each file, bytes.

        Raises:
            UnsafeFileError: for a link, or anything else that is not a regular file, with the name of one.
        """
        self.topic = topic
        self.queue_id = queue_id
        self.layout = layout
        self.folder = f"{layout.folder}/{topic}/{queue_id}"
        self.file_size = file_size
        self._files = files
        # The first of two names of one number: `queue_folders` reports the other.
        names = files.files_in(self.folder, is_segment_name)
        found = {int(name): name for name in reversed(names)}
        self.origin = 0 if layout.is_aligned else self._most_frequent_origin(found)
        self.starts = sorted(start for start in found if self.may_be_file_start(start))
        self._known = {start: found[start] for start in self.starts}
        self.has_extension = files.has_folder(f"{_EXTENSIONS}/{topic}/{queue_id}")

    def _most_frequent_origin(self, starts: Iterable[int]) -> int:
        """Return the most frequent remainder of a file's start divided by the file size; 0 without files."""
        places = Counter(start % self.file_size for start in starts if start % self.layout.entry_size == 0)
        return places.most_common(1)[0][0] if places else 0

    def may_be_file_start(self, position: int) -> bool:
        """Return whether a file of this queue may begin at a byte position."""
        return (position - self.origin) % self.file_size == 0

    @property
    def name(self) -> str:
        """Topic and queue id, such as `orders/3`."""
        return f"{self.topic}/{self.queue_id}"

    @property
    def first_number(self) -> int:
        """Number of the first entry of the first file; 0 without a file."""
        return self.starts[0] // self.layout.entry_size if self.starts else 0

    @property
    def end_number(self) -> int:
        """Number after the last entry for which the last file has room; 0 without a file."""
        return (self.starts[-1] + self.file_size) // self.layout.entry_size if self.starts else 0

    def entry_place(self, entry_number: int) -> tuple[str, int]:
        """Return the path of the file that holds an entry, and the entry's byte position in it."""
        start = max(0, self.file_start(entry_number))
        name = self._known.get(start, segment_name(start))
        return f"{self.folder}/{name}", entry_number * self.layout.entry_size - start

    def file_start(self, number: int) -> int:
        """Return the byte position at which an entry's file begins; negative if that is before the queue's start."""
        position = number * self.layout.entry_size
        return position - (position - self.origin) % self.file_size

    def split_by_file(self, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        """Divide a range of entry numbers at file borders; yield each part, and whether its file exists."""
        while first < end:
            start = self.file_start(first)
            stop = min(end, (start + self.file_size) // self.layout.entry_size)
            yield first, stop, start in self._known
            first = stop

    def read_entries(self, first: int, end: int) -> Array:
        """Return a range of entries of one file; zeros if the file is missing or too short.

        Args:
            first: number of the first entry.
            end: number after the last entry, in the same file.
        """
        start = self.file_start(first)
        data = np.zeros((end - first) * self.layout.entry_size, np.uint8)
        try:
            file = self._files.open(f"{self.folder}/{self._known.get(start, segment_name(start))}")
        except FileNotFoundError:
            return data.view(self.layout.dtype)
        try:
            file.read_into(data, first * self.layout.entry_size - start)
        finally:
            file.close()
        return data.view(self.layout.dtype)

    def find_written_end(self) -> int:
        """Return the entry number after the last valid entry, found by bisection of the last file that has one."""
        for start in reversed(self.starts):
            first = start // self.layout.entry_size
            end = first + self.file_size // self.layout.entry_size
            low = self._first_number_failing(first, end, self.layout.is_written)
            if low > first:
                return low
        return self.first_number

    def read_entry_blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield all entries in blocks, each with the number of its first entry."""
        for start in self.starts:
            first = start // self.layout.entry_size
            end = first + self.file_size // self.layout.entry_size
            for number in range(first, end, _AT_ONCE):
                entries = self.read_entries(number, min(end, number + _AT_ONCE))
                if not entries.view(np.uint8).any() and start == self.starts[-1]:
                    return
                yield number, entries

    def entries_between(self, first_offset: int, last_offset: int, *, by_search: bool = True) -> tuple[Array, Array]:
        """Return the entries that point to a range of the log.

        Args:
            first_offset: physical offset of the first record.
            last_offset: physical offset of the last record.
            by_search: find them by bisection, which needs undamaged entries; otherwise read the whole queue.

        Returns:
            The numbers of the entries, and the entries.
        """
        blocks = self.read_entry_blocks()
        if by_search:
            pieces = self.split_by_file(
                self.first_number_at_or_after(first_offset), self.first_number_at_or_after(last_offset + 1)
            )
            blocks = ((first, self.read_entries(first, end)) for first, end, _ in pieces)
        numbers, found = [np.zeros(0, np.int64)], [np.zeros(0, self.layout.dtype)]
        for first, entries in blocks:
            offsets = entries["physical_offset"]
            leads = (offsets >= first_offset) & (offsets <= last_offset) & self.layout.is_written(entries)
            numbers.append(first + np.flatnonzero(leads))
            found.append(entries[leads])
        return np.concatenate(numbers), np.concatenate(found)

    def first_number_at_or_after(self, offset: int) -> int:
        """Return the number of the first entry that points to a physical offset or to a later one."""
        return self._first_number_failing(
            self.first_number, self.find_written_end(), lambda entries: entries["physical_offset"] < offset
        )

    def _first_number_failing(self, low: int, high: int, condition: Callable[[Array], Array]) -> int:
        """Find by bisection the first entry number that does not meet a condition; `high` if all meet it."""
        first, block = low, None
        while low < high:
            if block is None and high - low <= _AT_ONCE and self.file_start(low) == self.file_start(high - 1):
                # One read costs less than opening the file for each step.
                first, block = low, self.read_entries(low, high)
            middle = (low + high) // 2
            entry = (
                self.read_entries(middle, middle + 1) if block is None else block[middle - first : middle - first + 1]
            )
            if condition(entry)[0]:
                low = middle + 1
            else:
                high = middle
        return low
