"""Records that a store's ConsumeQueues have after the end of its log: lost in a crash, or overwritten with zeros.

An end of zeros looks like space that was never written, so only the queues prove that there were records.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from pathlib import Path

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.store_files import LocalStoreFiles
from commitlake.connectors.formats.queue_walking import walk_queue_folders
from commitlake.connectors.formats.rocketmq.consume_queues import ENTRY_DTYPE, is_written
from commitlake.schemas.layouts.segments import parse_segment_name
from commitlake.schemas.store_files import files_in, open_file

_FOLDER = "consumequeue"
_READ_ENTRIES = 1 << 16
MAX_COUNTED = 1 << 20
"""Number of records after which no more are counted."""


def records_after(root: Path, end: int) -> int:
    """Return the number of records after the log's end that queues point to, at most `MAX_COUNTED`.

    Each queue is read from its newest file back to its first entry before the end.

    Args:
        root: the store's folder.
        end: physical offset at which the log ends.

    Raises:
        UnsafeFileError: for a link, or anything else that is not a regular file, among the queues.
    """
    offsets: set[int] = set()
    for queue in walk_queue_folders(LocalStoreFiles(root), _FOLDER):
        folder = root / queue.path
        names = files_in(folder, lambda name: parse_segment_name(name) is not None, below=root)
        for name in reversed(names):
            if len(offsets) >= MAX_COUNTED:
                return MAX_COUNTED
            if _take_after(root, folder / name, end, offsets):
                break
    return min(len(offsets), MAX_COUNTED)


def _take_after(root: Path, path: Path, end: int, offsets: set[int]) -> bool:
    """Add the offsets after the log's end in a file of a queue. Return whether the file has one before the end.

    Entries are at the beginning of a file. Where they end is searched for, because a file may be large and empty.
    """
    with os.fdopen(open_file(path, below=root), "rb", buffering=0) as file:

        def read(start: int, stop: int) -> Array:
            file.seek(start * ENTRY_DTYPE.itemsize)
            data = file.read((stop - start) * ENTRY_DTYPE.itemsize)
            return np.frombuffer(data[: len(data) // ENTRY_DTYPE.itemsize * ENTRY_DTYPE.itemsize], ENTRY_DTYPE)

        size = os.fstat(file.fileno()).st_size // ENTRY_DTYPE.itemsize
        stop = bisect_left(range(size), True, key=lambda number: not is_written(read(number, number + 1)).all())
        while stop > 0 and len(offsets) < MAX_COUNTED:
            start = max(0, stop - _READ_ENTRIES)
            found = read(start, stop)["physical_offset"]
            offsets.update(found[found >= end].tolist())
            if (found < end).any():
                return True
            stop = start
    return False
