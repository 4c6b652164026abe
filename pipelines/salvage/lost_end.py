"""Records that a store's ConsumeQueues have after the end of its log: lost in a crash, or overwritten with zeros.

An end of zeros looks like space that was never written, so only the queues prove that there were records.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.indexed_files import StoreFiles, read_all
from commitlake.connectors.formats.queue_walking import walk_queue_folders
from commitlake.connectors.formats.rocketmq.consume_queues import ENTRY_DTYPE, is_written
from commitlake.schemas.layouts.segments import is_segment_name

_FOLDER = "consumequeue"
_READ_ENTRIES = 1 << 16
MAX_COUNTED = 1 << 20
"""Number of records after which no more are counted."""


def records_after(files: StoreFiles, end: int) -> int:
    """Return the number of records after the log's end that queues point to, at most `MAX_COUNTED`.

    Each queue is read from its newest file back to its first entry before the end.

    Args:
        end: physical offset at which the log ends.

    Raises:
        UnsafeFileError: for a link, or anything else that is not a regular file, among the queues.
    """
    offsets: set[int] = set()
    for queue in walk_queue_folders(files, _FOLDER):
        for name in reversed(files.files_in(queue.path, is_segment_name)):
            if len(offsets) >= MAX_COUNTED:
                return MAX_COUNTED
            if _take_after(files, f"{queue.path}/{name}", end, offsets):
                break
    return min(len(offsets), MAX_COUNTED)


def _take_after(files: StoreFiles, path: str, end: int, offsets: set[int]) -> bool:
    """Add the offsets after the log's end in a file of a queue. Return whether the file has one before the end.

    Entries are at the beginning of a file. Where they end is searched for, because a file may be large and empty.
    """
    with closing(files.open(path)) as file:

        def read(start: int, stop: int) -> Array:
            data = read_all(file, start * ENTRY_DTYPE.itemsize, stop * ENTRY_DTYPE.itemsize)
            return data[: len(data) // ENTRY_DTYPE.itemsize * ENTRY_DTYPE.itemsize].view(ENTRY_DTYPE)

        size = file.size() // ENTRY_DTYPE.itemsize
        stop = bisect_left(range(size), True, key=lambda number: not is_written(read(number, number + 1)).all())
        while stop > 0 and len(offsets) < MAX_COUNTED:
            start = max(0, stop - _READ_ENTRIES)
            found = read(start, stop)["physical_offset"]
            offsets.update(found[found >= end].tolist())
            if (found < end).any():
                return True
            stop = start
    return False
