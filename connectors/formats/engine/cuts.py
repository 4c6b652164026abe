"""Positions at which a segment's range may be divided, which must be starts of records.

A cut is found from the bytes around it, so that planning reads some MiB for each split instead of the whole log. The
search begins at a multiple of the partition size. The cut is the first valid record that no apparent record spans; all
apparent records that begin in the `LOOK_BACK_BYTES` before it are examined (`kernel.borders`). `LOOK_BACK_BYTES` is
twice the largest body that RocketMQ accepts by default. A larger record could have valid records in its body, and a cut
could then be placed inside it. The task that reads the range before such a cut finds that its last record extends
beyond the cut, and fails (`batches.read_split`). If no cut is near, because of damage or of such bodies, and for small
partitions, the range is scanned record by record from the last cut on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from commitlake.connectors.formats.engine.files import LocalFile, SegmentFile
from commitlake.connectors.formats.engine.kernel import hop
from commitlake.connectors.formats.engine.kernel.borders import NONE_AT_ALL
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.walk import End, walk
from commitlake.connectors.formats.engine.windows import Windows

LOOK_BACK_BYTES = 8 << 20
_WORTH_A_LOOK = 2  # in look-backs; for shorter distances, hopping reads less
_WINDOW_BYTES = 1 << 20


def find_cuts(
    file: SegmentFile, whole: Split, max_partition_bytes: int, max_record_bytes: int, until: int
) -> Iterator[int]:
    """Yield the first record start at or after each multiple of the partition size, up to one at or past `until`."""
    cut: int | None = whole.start
    while cut is not None and cut < until:
        following = _next_multiple(cut, max_partition_bytes)
        if following >= whole.end:
            return
        cut = find_cut(file, replace(whole, start=cut), following, max_record_bytes)
        if cut is not None:
            yield cut


def find_last_cut(file: SegmentFile, whole: Split, max_partition_bytes: int, max_record_bytes: int) -> int | None:
    """Return the last cut that the surrounding bytes prove; None if there is none and the range must be scanned.

    The last multiple of the partition size is tried first, then the others by bisection, because a segment that is
    being written is zeros from some position on. If damage hides cuts, an earlier one may be found.
    """
    first = max(_next_multiple(whole.start, max_partition_bytes), whole.start + _WORTH_A_LOOK * LOOK_BACK_BYTES)
    last = (whole.end - 1) // max_partition_bytes * max_partition_bytes
    places = range(-(-first // max_partition_bytes) * max_partition_bytes, last + 1, max_partition_bytes)
    low, high = 0, len(places)
    middle = high - 1
    found = None
    while low < high:
        cut = _looked_up(file, whole, places[middle], max_record_bytes)
        if cut is None:
            high = middle
        else:
            found, low = cut, middle + 1
        middle = (low + high) // 2
    return found


def find_cut(file: SegmentFile, whole: Split, at: int, max_record_bytes: int) -> int | None:
    """Return the first record start at or after a physical offset in a range, or None."""
    cut = None
    if at - whole.start >= _WORTH_A_LOOK * LOOK_BACK_BYTES:
        cut = _looked_up(file, whole, at, max_record_bytes)
    return _hopped(file, whole, at, max_record_bytes) if cut is None else cut


def _next_multiple(offset: int, size: int) -> int:
    return (offset // size + 1) * size


def _looked_up(file: SegmentFile, whole: Split, at: int, max_record_bytes: int) -> int | None:
    """Return the first record start at or after `at` that no other record spans, if one is near."""
    begin = at - LOOK_BACK_BYTES
    end = min(whole.end, at + LOOK_BACK_BYTES)
    if isinstance(file, LocalFile) and _is_hole(file, begin - whole.base_offset, end - whole.base_offset):
        return None
    windows = Windows(file, whole.base_offset, LOOK_BACK_BYTES + _WINDOW_BYTES, end - begin)
    kernel = whole.format.kernel
    parts = np.empty((kernel.part_count, 1), np.int64)
    while True:
        with windows.open(begin, end) as opened:
            found = kernel.find_border(
                opened.window, opened.length, begin, at, whole.segment_end, whole.file_end,
                max_record_bytes, parts,
            )  # fmt: skip
            is_all = opened.is_end_of_file or opened.length >= end - begin
            if opened.was_cut:
                windows.only_read()
                continue
        if found >= 0:
            return int(found)
        if is_all or found == NONE_AT_ALL:
            return None
        windows.grow()


def _is_hole(file: LocalFile, begin: int, end: int) -> bool:
    data = file.next_data(begin)
    return data is None or data >= end


def _hopped(file: SegmentFile, rest: Split, following: int, max_record_bytes: int) -> int | None:
    """Return the first record start at or after `following`, by following records from a known start."""
    for step in walk(file, rest, _WINDOW_BYTES, max_record_bytes, End(), verify=False):
        starts = step.origin + step.parts[hop.START]
        if len(starts) and starts[-1] >= following:
            return int(starts[np.searchsorted(starts, following)])
    return None
