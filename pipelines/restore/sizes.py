"""Detects the segment size of a broker from the offsets of archived records.

A record never crosses the end of a segment, and each segment ends with a BLANK of at least 8 bytes. The log therefore
has a hole before the start of each segment, and that start is a multiple of the segment size. Records that are missing
in the lake leave holes as well, but not before every multiple of some size.
"""

from __future__ import annotations

import math

import numpy as np
from deltalake import DeltaTable

from commitlake.connectors.arrays import Array
from commitlake.pipelines.restore.errors import RestoreError
from commitlake.pipelines.restore.log_rows import LogRange, extents
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE
from commitlake.schemas.layouts.segments import DEFAULT_SEGMENT_SIZE

_LOOK_BYTES = DEFAULT_SEGMENT_SIZE + (64 << 20)
_SMALLEST = 4096
_MAX_HOLES = 1000


def find_segment_size(table: DeltaTable, broker: str, log: LogRange) -> int:
    """Return the segment size of a log: the default of brokers, unless the records contradict it.

    Raises:
        RestoreError: if it cannot be detected.
    """
    starts, sizes = extents(table, broker, log.start, min(log.end, log.start + _LOOK_BYTES))
    order = np.argsort(starts)
    return segment_size_of(starts[order], starts[order] + sizes[order])


def segment_size_of(starts: Array, ends: Array) -> int:
    """Return the segment size, from the first records of a log.

    Args:
        starts: physical offsets, in order.
        ends: offset after each record.

    Raises:
        RestoreError: if it cannot be detected.
    """
    after_holes = starts[1:][starts[1:] > ends[:-1]][:_MAX_HOLES].tolist()
    marks = [int(starts[0]), *after_holes]  # a log that was archived from its beginning begins with a segment, too
    found = {math.gcd(*pair) for distance in (1, 2) for pair in zip(marks, marks[distance:], strict=False)}
    for size in sorted(found):  # sizes that fit also fit as their multiples: the smallest one comes first
        borders = _borders(starts, size)
        # One border may be a coincidence: then only a multiple of 4096 is accepted.
        if size >= _SMALLEST and len(borders) > (size % _SMALLEST > 0) and _fit(starts, ends, borders):
            return size
    if not _fit(starts, ends, _borders(starts, DEFAULT_SEGMENT_SIZE)):
        raise RestoreError(
            f"the size of the broker's segments cannot be detected: expected {DEFAULT_SEGMENT_SIZE:,} bytes, "
            "found records that cross their ends. Give the size in the broker's mappedFileSizeCommitLog"
        )
    return DEFAULT_SEGMENT_SIZE


def _borders(starts: Array, size: int) -> Array:
    """Return the multiples of a size after the first record, up to the last one."""
    if not size:
        return np.zeros(0, np.int64)
    return np.arange(starts[0] - starts[0] % size + size, starts[-1] + 1, size)


def _fit(starts: Array, ends: Array, borders: Array) -> bool:
    """Return whether each border has room for a BLANK before it."""
    before = np.searchsorted(starts, borders) - 1
    return bool((ends[before] + END_RESERVE <= borders).all())
