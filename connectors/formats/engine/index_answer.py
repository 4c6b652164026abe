"""Answers of a broker's index about a segment, and the splits derived from them.

An index is trusted if it says that a record has another topic or another key. The records that it lists as wanted are
checked in full when they are read (`listed`). Ranges that it does not cover are scanned. So if an index is behind its
log, or has lost a file or a queue, a read takes longer but returns the same rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.files import OpenSegment, SegmentFile
from commitlake.connectors.formats.engine.filters import Filters
from commitlake.connectors.formats.engine.plan import divide
from commitlake.connectors.formats.engine.single_records import examine_at
from commitlake.connectors.formats.engine.splits import ListedSplit, Split, groups
from commitlake.schemas.layouts.rocketmq.scan import SpanKind

MAX_RECORDS = 1 << 16
"""Records in one split; their lists take one and a half megabytes then."""
MAX_SHARE = 0.3
"""Share of the cost of a scan; above it, a scan is as fast or faster, because it reads ahead and in bulk."""
SEEK_BYTES = 256 << 10
"""Bytes that a disk reads in the time of a seek: the cost of a look-up besides its bytes."""
MAX_RANGES = 16
"""Number of unknown ranges in one segment; each needs its own task."""


class IndexUnusable(Exception):  # noqa: N818 (not an error: the range is scanned instead, and this says why)
    """Error with the reason why an index cannot answer for a range, for the plan."""


@dataclass
class IndexAnswer:
    """Answer of an index about one range.

    Attributes:
        offsets: physical offsets of the wanted records, ascending.
        sizes: sizes of these records, bytes.
        unknown: ranges that the index does not cover, in order; each begins where a record should.
        queues: topics and queue ids that `queue_numbers` count.
        queue_numbers: index in `queues` of each record's queue, if the index has it.
        queue_offsets: queue offset of each record, if the index has it.
    """

    offsets: Array
    sizes: Array
    unknown: list[tuple[int, int]]
    queues: tuple[tuple[str, int], ...] = ()
    queue_numbers: Array = field(default_factory=lambda: np.empty(0, np.int32))
    queue_offsets: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def of_topics(self, topics: Collection[str]) -> IndexAnswer:
        """Return the answer for the given topics; unknown ranges stay unknown."""
        return self.part(np.array([topic in topics for topic, _ in self.queues], bool)[self.queue_numbers])

    def part(self, rows: Array | slice) -> IndexAnswer:
        """Return the answer restricted to the given records; ranges that the index does not cover are kept."""
        return replace(
            self,
            offsets=self.offsets[rows],
            sizes=self.sizes[rows],
            queue_numbers=self.queue_numbers[rows],
            queue_offsets=self.queue_offsets[rows],
        )


class Index(Protocol):
    """Index of one store, prepared for one read."""

    name: str

    def answer(self, whole: Split) -> IndexAnswer:
        """Return the answer for a segment's range.

        Raises:
            IndexUnusable: if the index is not reliable there.
        """
        ...


class KeyIndex(Index, Protocol):
    """Index that was searched for keys of topics.

    Attributes:
        notes: files that were not trusted, and why.
    """

    notes: list[str]


def check_cheaper_than_scan(offsets: Array, sizes: Array, unknown: Sequence[tuple[int, int]], whole: Split) -> None:
    """Compare the cost of reading by an index, including seeks, with that of a scan.

    Args:
        offsets: physical offsets of the listed records, ascending.
        sizes: their bytes.
        unknown: ranges that are also scanned.
        whole: the range that would be scanned.

    Raises:
        IndexUnusable: if a scan is as fast.
    """
    edges = groups(offsets, sizes)
    spans = (offsets + sizes)[edges[1:] - 1] - offsets[edges[:-1]] if len(offsets) else np.zeros(0, np.int64)
    cost = int(spans.sum()) + sum(end - start for start, end in unknown) + SEEK_BYTES * (len(spans) + len(unknown))
    if cost > MAX_SHARE * whole.size:
        raise IndexUnusable("a scan is faster, because the wanted records are close together")


def splits_of(
    answer: IndexAnswer, whole: Split, filters: Filters, partition_bytes: int, max_record_bytes: int
) -> list[Split]:
    """Return splits for the records that an index lists, and for the ranges that it does not cover.

    Args:
        whole: range of the segment.
        filters: filters of the read.
        partition_bytes: largest number of log bytes in a split.
        max_record_bytes: larger sizes are faults.

    Raises:
        IndexUnusable: if a scan of the whole range is faster, or the answer does not match the log.
    """
    low, high = filters.min_offset, filters.end_offset
    kept = np.ones(len(answer.offsets), bool)
    if low is not None:
        kept &= answer.offsets >= low
    if high is not None:
        kept &= answer.offsets < high
    unknown = [
        (start, end) for start, end in answer.unknown if (low is None or end > low) and (high is None or start < high)
    ]
    try:
        with OpenSegment(whole.path) as file:
            unknown = list(_ranges_to_scan(file, whole, unknown, max_record_bytes))
    except FileNotFoundError:
        raise IndexUnusable("the segment has been deleted since it was listed") from None
    check_cheaper_than_scan(answer.offsets[kept], answer.sizes[kept], unknown, whole)
    if len(unknown) > MAX_RANGES:
        raise IndexUnusable(f"it leaves more than {MAX_RANGES} ranges open")
    scanned = [
        split
        for start, end in unknown
        for split in divide(replace(whole, start=start, end=end), partition_bytes, max_record_bytes, high)
    ]
    pieces = np.split(np.flatnonzero(kept), np.searchsorted(answer.offsets[kept], [start for start, _ in unknown]))
    listed = [split for piece in pieces for split in _listed(answer, piece, whole, partition_bytes)]
    return sorted([*scanned, *listed], key=lambda split: split.start)  # in the order of the log, as in a scan


def _ranges_to_scan(
    file: SegmentFile, whole: Split, unknown: list[tuple[int, int]], max_record_bytes: int
) -> Iterator[tuple[int, int]]:
    """Return the ranges that must be scanned, without those that are only the segment's BLANK."""
    for start, end in unknown:
        finding, _ = examine_at(file, whole, start, max_record_bytes)
        if finding.kind is SpanKind.BLANK and start + finding.size == end:
            continue
        if finding.kind is SpanKind.FAULT:
            # Either the log is damaged here, or an entry before this position is wrong; a scan shows which.
            raise IndexUnusable("a range that it leaves open does not begin with a record")
        yield start, end


def _listed(answer: IndexAnswer, kept: Array, whole: Split, max_bytes: int) -> Iterator[ListedSplit]:
    ends = np.cumsum(answer.sizes[kept])
    first = 0
    while first < len(kept):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + max_bytes, "right")))
        rows = kept[first : min(last, first + MAX_RECORDS)]
        yield ListedSplit(
            whole.broker,
            whole.path,
            whole.base_offset,
            int(answer.offsets[rows[0]]),
            int(answer.offsets[rows[-1]] + answer.sizes[rows[-1]]),
            whole.segment_end,
            whole.file_end,
            format=whole.format,
            offsets=answer.offsets[rows].astype(np.int64).tobytes(),
            sizes=answer.sizes[rows].astype(np.int64).tobytes(),
            queues=answer.queues,
            queue_numbers=answer.queue_numbers[rows].astype(np.int32).tobytes() if answer.queues else b"",
            queue_offsets=answer.queue_offsets[rows].astype(np.int64).tobytes() if answer.queues else b"",
        )
        first += len(rows)
