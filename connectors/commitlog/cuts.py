"""Where a segment's range may be divided: places where records begin.

A place is taken from the records around it where that can be trusted, so that planning reads a few MiB for each split
and not the log: from a multiple of the partition size on, the first record that proves itself, with an unbroken chain
of records behind it that is longer than any body. A body that held such a chain would have to be larger than
`CHAIN_BYTES`, twice what RocketMQ accepts unless it is told otherwise; whoever reads the range before would see that
its last record goes on behind the cut, and fail (`batches.read_split`). Where there is no such chain, because of
damage, and for small partitions, the range is hopped through from the last cut on.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from connectors.commitlog.files import SegmentFile
from connectors.commitlog.kernel import hop
from connectors.commitlog.splits import Split
from connectors.commitlog.walk import End, walk

CHAIN_BYTES = 8 << 20
_WORTH_A_CHAIN = 4  # chains in a partition: for a smaller one, hopping reads no more
_WINDOW_BYTES = 1 << 20


def find_cuts(
    file: SegmentFile, whole: Split, max_partition_bytes: int, max_record_bytes: int, until: int
) -> list[int]:
    """The first record start at or behind each multiple of the partition size, up to the first one from `until` on."""
    cuts: list[int] = []
    following = _next_multiple(whole.start, max_partition_bytes)
    while following < whole.end:
        cut = None
        if max_partition_bytes >= _WORTH_A_CHAIN * CHAIN_BYTES:
            end = min(whole.end, following + CHAIN_BYTES + CHAIN_BYTES // 4)
            cut = _chained(file, replace(whole, start=following, end=end), whole.end, max_record_bytes)
        if cut is None:
            cut = _hopped(file, replace(whole, start=cuts[-1] if cuts else whole.start), following, max_record_bytes)
        if cut is None:
            break
        cuts.append(cut)
        if cut >= until:
            break
        following = _next_multiple(cut, max_partition_bytes)
    return cuts


def _next_multiple(offset: int, size: int) -> int:
    return (offset // size + 1) * size


def _chained(file: SegmentFile, part: Split, end: int, max_record_bytes: int) -> int | None:
    """The first record of a part that begins anywhere, if a long enough chain or the end of all follows it."""
    first: int | None = None
    reached = part.start
    for step in walk(file, part, _WINDOW_BYTES, max_record_bytes, End(), verify=False):
        if any(bad.start > part.start for bad in step.bad):
            return None
        if step.parts.shape[1]:
            first = step.origin + int(step.parts[hop.START, 0]) if first is None else first
            reached = step.origin + int(step.parts[hop.START, -1])
    trusted = first is not None and (reached - first >= CHAIN_BYTES or part.end == end)
    return first if trusted else None


def _hopped(file: SegmentFile, rest: Split, following: int, max_record_bytes: int) -> int | None:
    """The first record from `following` on, found from a place where a record begins."""
    for step in walk(file, rest, _WINDOW_BYTES, max_record_bytes, End(), verify=False):
        starts = step.origin + step.parts[hop.START]
        if len(starts) and starts[-1] >= following:
            return int(starts[np.searchsorted(starts, following)])
    return None
