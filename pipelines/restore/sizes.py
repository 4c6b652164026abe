"""Detection of a broker's segment size from the offsets of archived records.

A record never crosses the end of a segment, and a BLANK of 8 bytes at least closes each: so the log has a hole in front
of every segment's first offset, which is a multiple of the size. Records that the lake lacks leave holes, too, but not
such that every multiple of some size lies behind one.
"""

from __future__ import annotations

import math

import numpy as np
from deltalake import DeltaTable

from commitlake.connectors.arrays import Array
from commitlake.pipelines.restore.errors import RestoreError
from commitlake.pipelines.restore.rows import LogRange, extents
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE
from commitlake.schemas.layouts.segments import DEFAULT_SEGMENT_SIZE

_LOOK_BYTES = DEFAULT_SEGMENT_SIZE + (64 << 20)
_SMALLEST = 4096
_MOST_HOLES = 1000


def find_segment_size(table: DeltaTable, broker: str, log: LogRange) -> int:
    """Return the segment size of a log: the broker's default, unless the records contradict it.

    Raises:
        RestoreError: where it cannot be told.
    """
    starts, sizes = extents(table, broker, log.start, min(log.end, log.start + _LOOK_BYTES))
    order = np.argsort(starts)
    return segment_size_of(starts[order], starts[order] + sizes[order])


def segment_size_of(starts: Array, ends: Array) -> int:
    """Return the segment size by the first records of a log.

    Args:
        starts: physical offsets, in order.
        ends: behind each.

    Raises:
        RestoreError: where it cannot be told.
    """
    behind_holes = starts[1:][starts[1:] > ends[:-1]][:_MOST_HOLES].tolist()
    marks = [int(starts[0]), *behind_holes]  # a log that was archived from its beginning begins with a segment, too
    found = {math.gcd(*pair) for distance in (1, 2) for pair in zip(marks, marks[distance:], strict=False)}
    for size in sorted(found):  # what fits a size, fits its multiples
        borders = _borders(starts, size)
        # One border may be chance: then only a round number will do.
        if size >= _SMALLEST and len(borders) > (size % _SMALLEST > 0) and _fit(starts, ends, borders):
            return size
    if not _fit(starts, ends, _borders(starts, DEFAULT_SEGMENT_SIZE)):
        raise RestoreError(
            f"the size of the broker's segments cannot be told from the lake: expected {DEFAULT_SEGMENT_SIZE:,} bytes, "
            "found records that such segments do not hold. Give mappedFileSizeCommitLog as the broker had it"
        )
    return DEFAULT_SEGMENT_SIZE


def _borders(starts: Array, size: int) -> Array:
    """Return the multiples of a size after the first record, up to the last."""
    if not size:
        return np.zeros(0, np.int64)
    return np.arange(starts[0] - starts[0] % size + size, starts[-1] + 1, size)


def _fit(starts: Array, ends: Array, borders: Array) -> bool:
    """Return whether there is room for a BLANK before each border."""
    before = np.searchsorted(starts, borders) - 1
    return bool((ends[before] + END_RESERVE <= borders).all())
