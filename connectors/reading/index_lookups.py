"""Look-ups in a broker's indexes: which records of a segment may be wanted, and the splits to read them.

An index is trusted if it says that a record has another topic or another key. The records that it lists as wanted are
checked in full when they are read (`listed_records`). Ranges that it does not cover are scanned. So if an index is
behind its log, or has lost a file or a queue, a read takes longer but returns the same rows.

`QueueIndex` is the index of topics and queues, from ConsumeQueues. The queues of all topics together cover every byte
of the log. So for a segment all queues are read, wanted or not, 20 bytes for each message, unless reading the wanted
records alone takes as long as a scan. Bytes that no entry claims are scanned. This one test covers all cases of
incomplete queues: a queue or a queue file that is lost or not yet written, a copy made while the broker was running,
topics of batches, whose queues have another form, records that brokers never enter (half messages of old brokers),
damage, and the end of the log that dispatch has not reached. If two entries claim the same bytes, the segment is
scanned.

The queues `%LMQ%...` are left out, because their entries refer to records of other topics, which have an entry there.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.indexes import BadIndexError, IndexAnswer
from commitlake.connectors.log_format.queues import AFTER_ALL, QueueFormat
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.single_records import scan_at_offset
from commitlake.connectors.reading.snapshots import divide_segment
from commitlake.connectors.reading.splits import ListedSplit, Split, group_nearby_records
from commitlake.schemas.layouts.rocketmq.scan import SpanKind
from commitlake.schemas.layouts.segment_names import is_segment_name, parse_queue_folder
from commitlake.schemas.safe_store_files import files_in, folders_in, open_file

MAX_RECORDS = 1 << 16
"""Records in one split; their lists take one and a half megabytes then."""
MAX_SHARE = 0.3
"""Share of the cost of a scan; above it, a scan is as fast or faster, because it reads ahead and in bulk."""
SEEK_BYTES = 256 << 10
"""Bytes that a disk reads in the time of a seek: the cost of a look-up besides its bytes."""
MAX_RANGES = 16
"""Number of unknown ranges in one segment; each needs its own task."""


class RecordIndex(Protocol):
    """Interface of an index that finds the wanted records of one read in one store."""

    name: str

    def find_records(self, segment_range: Split) -> IndexAnswer:
        """Return the wanted records in a segment's range, and the ranges that the index does not cover.

        Raises:
            BadIndexError: if the index is not reliable there.
        """
        ...


def check_cheaper_than_scan(
    offsets: Array, sizes: Array, uncovered_ranges: Sequence[tuple[int, int]], segment_range: Split
) -> None:
    """Raise `BadIndexError` if a scan costs less than reading the listed records with a seek for each.

    Args:
        offsets: physical offsets of the listed records, ascending.
        sizes: their bytes.
        uncovered_ranges: ranges that are also scanned.
        segment_range: the range that would be scanned.

    Raises:
        BadIndexError: if a scan is as fast.
    """
    edges = group_nearby_records(offsets, sizes)
    spans = (offsets + sizes)[edges[1:] - 1] - offsets[edges[:-1]] if len(offsets) else np.zeros(0, np.int64)
    cost = (
        int(spans.sum())
        + sum(end - start for start, end in uncovered_ranges)
        + SEEK_BYTES * (len(spans) + len(uncovered_ranges))
    )
    if cost > MAX_SHARE * segment_range.size:
        raise BadIndexError("a scan is faster, because the wanted records are too many, or too close together")


def make_index_splits(
    index_answer: IndexAnswer, segment_range: Split, filters: Filters, partition_bytes: int, max_record_bytes: int
) -> list[Split]:
    """Return splits for the records that an index lists, and for the ranges of a segment that it does not cover.

    Args:
        segment_range: range of the segment.
        filters: filters of the read.
        partition_bytes: largest number of log bytes in a split.
        max_record_bytes: larger sizes are faults.

    Raises:
        BadIndexError: if a scan of the whole range is faster, or the answer does not match the log.
    """
    low, high = filters.min_offset, filters.end_offset
    kept = np.ones(len(index_answer.offsets), bool)
    if low is not None:
        kept &= index_answer.offsets >= low
    if high is not None:
        kept &= index_answer.offsets < high
    unknown = [
        (start, end)
        for start, end in index_answer.unknown
        if (low is None or end > low) and (high is None or start < high)
    ]
    # Before the cost is computed: a BLANK at the segment's end looks like an uncovered range, and would make the index
    # seem more expensive.
    try:
        with OpenSegment(segment_range.path) as file:
            unknown = list(_ranges_to_scan(file, segment_range, unknown, max_record_bytes))
    except FileNotFoundError:
        raise BadIndexError("the segment has been deleted since it was listed") from None
    check_cheaper_than_scan(index_answer.offsets[kept], index_answer.sizes[kept], unknown, segment_range)
    if len(unknown) > MAX_RANGES:
        raise BadIndexError(
            f"the index does not cover more than {MAX_RANGES} ranges of the segment, so that a scan is faster"
        )
    scanned = [
        split
        for start, end in unknown
        for split in divide_segment(
            replace(segment_range, start=start, end=end), partition_bytes, max_record_bytes, high
        )
    ]
    # Cut at the scanned ranges, so that no split of listed records lies on both sides of one, and the order of the log
    # is kept.
    pieces = np.split(
        np.flatnonzero(kept), np.searchsorted(index_answer.offsets[kept], [start for start, _ in unknown])
    )
    listed = [
        split for piece in pieces for split in _make_listed_splits(index_answer, piece, segment_range, partition_bytes)
    ]
    return sorted([*scanned, *listed], key=lambda split: split.start)  # in the order of the log, as in a scan


def _ranges_to_scan(
    file: SegmentFile, segment_range: Split, uncovered_ranges: list[tuple[int, int]], max_record_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield the ranges that must be scanned; a range that is only the segment's BLANK is left out."""
    for start, end in uncovered_ranges:
        finding, _ = scan_at_offset(file, segment_range, start, max_record_bytes)
        if finding.kind is SpanKind.BLANK and start + finding.size == end:
            continue
        if finding.kind is SpanKind.FAULT:
            # Either the log is damaged here, or an entry before this position is wrong; a scan shows which.
            raise BadIndexError(
                f"expected a record at physical offset {start}, where a range begins that the index does not cover, "
                "found none"
            )
        yield start, end


def _make_listed_splits(
    index_answer: IndexAnswer, kept_rows: Array, segment_range: Split, partition_bytes: int
) -> Iterator[ListedSplit]:
    ends = np.cumsum(index_answer.sizes[kept_rows])
    first = 0
    while first < len(kept_rows):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + partition_bytes, "right")))
        rows = kept_rows[first : min(last, first + MAX_RECORDS)]
        yield ListedSplit(
            segment_range.broker,
            segment_range.path,
            segment_range.base_offset,
            int(index_answer.offsets[rows[0]]),
            int(index_answer.offsets[rows[-1]] + index_answer.sizes[rows[-1]]),
            segment_range.segment_end,
            segment_range.file_end,
            format=segment_range.format,
            offsets=index_answer.offsets[rows].astype(np.int64).tobytes(),
            sizes=index_answer.sizes[rows].astype(np.int64).tobytes(),
            queues=index_answer.queues,
            queue_numbers=index_answer.queue_numbers[rows].astype(np.int32).tobytes() if index_answer.queues else b"",
            queue_offsets=index_answer.queue_offsets[rows].astype(np.int64).tobytes() if index_answer.queues else b"",
        )
        first += len(rows)


_ENTRY = np.dtype([("offset", np.int64), ("size", np.int64)])


class QueueIndex:
    """The queue files of one store, used as an index for a read that selects topics or queues.

    Attributes:
        name: the name of the index in a plan.
    """

    def __init__(self, store_folder: Path, filters: Filters, max_record_bytes: int, queues: QueueFormat) -> None:
        """List the queues, without reading entries.

        Args:
            store_folder: the folder that contains the log and the queues.
            filters: the filters for records.
            max_record_bytes: larger sizes are faults.

        Raises:
            BadIndexError: if there are no queues, or they cannot be read.
        """
        self.name = queues.name
        self._format = queues
        self._filters = filters
        self._max_record_bytes = max_record_bytes
        # A topic that is not UTF-8 has U+FFFD in its name here, but its folder has another name.
        irregular = sorted(name for name in filters.topics or () if not queues.topics.fullmatch(str(name)))
        if irregular:
            raise BadIndexError(
                f"expected the name of a topic, found {irregular[0]!r}, which no topic of a broker can have"
            )
        try:
            self._open_queues = list(_open_queues(store_folder / queues.folder, queues))
        except OSError as error:
            raise BadIndexError(f"{error.filename}: {error.strerror}") from None
        if not self._open_queues:
            raise BadIndexError(f"the folder {store_folder / queues.folder} contains no queue")
        self._wanted = np.array([self._is_wanted_queue(queue) for queue in self._open_queues], bool)

    def _is_wanted_queue(self, queue: _IndexedQueue) -> bool:
        topics, queue_ids = self._filters.topics, self._filters.queue_ids
        return (topics is None or queue.topic in topics) and (queue_ids is None or queue.queue_id in queue_ids)

    def _check_cheaper_than_scan(self, segment_range: Split, entries_by_queue: dict[int, tuple[Array, Array]]) -> None:
        """Raise `BadIndexError` if a scan costs less than to read the records found so far in the smaller queues."""
        offsets, sizes = _join_offsets_and_sizes([entries for _, entries in entries_by_queue.values()])
        low, high = self._filters.min_offset, self._filters.end_offset
        # The queues are read one after the other, but grouping needs the order of the log.
        order = np.argsort(offsets)
        order = order[(offsets[order] >= (low or 0)) & (offsets[order] < (segment_range.end if high is None else high))]
        check_cheaper_than_scan(offsets[order], sizes[order], (), segment_range)

    def find_records(self, segment_range: Split) -> IndexAnswer:
        """Return the wanted records in a segment's range, and the ranges that no queue entry covers.

        Raises:
            BadIndexError: if entries contradict each other or cannot be read, or if a scan is as fast.
        """
        return self._find_records(segment_range, must_beat_scan=True)

    def list_entries(self, segment_range: Split) -> IndexAnswer:
        """Return the wanted records of a range according to the queues' entries, even if a scan would be as fast.

        Raises:
            BadIndexError: if entries contradict each other, or cannot be read.
        """
        return self._find_records(segment_range, must_beat_scan=False)

    def _find_records(self, segment_range: Split, *, must_beat_scan: bool) -> IndexAnswer:
        try:
            found: dict[int, tuple[Array, Array]] = {}
            self._add_entries(found, np.flatnonzero(self._wanted).tolist(), segment_range)
            # The wanted queues are read first. If their records already cost more than a scan, the entries of all
            # others are not read.
            if must_beat_scan:
                self._check_cheaper_than_scan(segment_range, found)
            # Needed although unwanted: their entries show which bytes belong to other topics, and so need no scan.
            self._add_entries(found, np.flatnonzero(~self._wanted).tolist(), segment_range)
        except OSError as error:
            raise BadIndexError(f"{error.filename}: {error.strerror}") from None
        offsets, sizes = _join_offsets_and_sizes([entries for _, entries in found.values()])
        numbers = np.repeat(np.array(list(found), np.int32), [len(entries) for _, entries in found.values()])
        queue_offsets = np.concatenate([in_queue for in_queue, _ in found.values()])
        order = np.argsort(offsets, kind="stable")
        offsets, sizes, numbers = offsets[order], sizes[order], numbers[order]
        unknown = _uncovered_ranges(
            offsets, sizes, segment_range, (self._format.min_record_size, self._max_record_bytes)
        )
        wanted = self._wanted[numbers]
        places = np.cumsum(self._wanted, dtype=np.int32) - 1
        return IndexAnswer(
            offsets[wanted],
            sizes[wanted],
            unknown,
            tuple((queue.topic, queue.queue_id) for queue in self._open_queues if self._is_wanted_queue(queue)),
            places[numbers[wanted]],
            queue_offsets[order][wanted],
        )

    def _add_entries(
        self, entries_by_queue: dict[int, tuple[Array, Array]], queue_numbers: list[int], segment_range: Split
    ) -> None:
        """Add the entries that some queues have for a range of the log to `entries_by_queue`.

        Args:
            entries_by_queue: queue offsets and entries by the number of the queue; receives those of these queues.
            queue_numbers: numbers of the queues.
            segment_range: the range.
        """
        # More entries than records fit in the range are wrong, whatever they say. This limits the memory that a damaged
        # queue can take.
        most = segment_range.size // self._format.min_record_size
        room = most - sum(len(entries) for _, entries in entries_by_queue.values())
        for number in queue_numbers:
            entries_by_queue[number] = self._open_queues[number].read_entries_between(
                segment_range.start, segment_range.end, room
            )
            room -= len(entries_by_queue[number][1])


def _join_offsets_and_sizes(entries: list[Array]) -> tuple[Array, Array]:
    """Return the physical offsets and sizes of entries."""
    together = np.concatenate([np.empty(0, _ENTRY), *entries])
    return together["offset"], together["size"]


def _uncovered_ranges(
    offsets: Array, sizes: Array, segment_range: Split, valid_sizes: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the parts of a range that no queue entry covers."""
    least, most = valid_sizes
    if len(sizes) and (sizes.min() < least or sizes.max() > most):
        raise BadIndexError(f"expected entries of records of {least} to {most} bytes, found one of another size")
    starts = np.append(offsets, segment_range.end)
    ends = np.insert(offsets + sizes, 0, segment_range.start)
    # Two entries for the same bytes: one of them is wrong, and the index does not tell which.
    if (starts < ends).any():
        place = int(starts[np.flatnonzero(starts < ends)[0]])
        raise BadIndexError(
            f"the entries of the queues overlap before physical offset {place}, or one extends past the end of the "
            "segment"
        )
    open_ranges = np.flatnonzero(starts > ends)
    return [(int(ends[place]), int(starts[place])) for place in open_ranges]


def _open_queues(folder: Path, queues: QueueFormat) -> Iterator[_IndexedQueue]:
    folder.stat()  # a missing folder is not an empty index
    for topic in folders_in(folder):
        if not (queues.no_queues and topic.startswith(queues.no_queues)):
            for queue in folders_in(folder / topic, trusted_root=folder):
                if (number := parse_queue_folder(queue)) is not None:
                    yield _IndexedQueue(topic, number, folder / topic / queue, queues)


class _IndexedQueue:
    """Reader of one queue, which searches for entries by bisection, because they are in the order of the log.

    If they are not in order, too few are found, and the other ranges are scanned.
    """

    def __init__(self, topic: str, queue_id: int, folder: Path, queues: QueueFormat) -> None:
        self.topic = topic
        self.queue_id = queue_id
        top = folder.parent.parent
        names = sorted(files_in(folder, is_segment_name, trusted_root=top), key=int)
        self._files = [_IndexedQueueFile(folder / name, int(name), queues) for name in names]

    def read_entries_between(self, start: int, end: int, max_entries: int) -> tuple[Array, Array]:
        """Return the queue offsets of the entries in a range of the log, and the entries."""
        found: list[tuple[int, Array]] = []
        for file in self._files:
            found.append(file.read_entries_between(start, end, max_entries))
            max_entries -= len(found[-1][1])
        numbers = [first + np.arange(len(entries), dtype=np.int64) for first, entries in found]
        return (
            np.concatenate([np.empty(0, np.int64), *numbers]),
            np.concatenate([np.empty(0, _ENTRY), *(entries for _, entries in found)]),
        )


class _IndexedQueueFile:
    """Reader of one queue file."""

    def __init__(self, path: Path, base: int, queues: QueueFormat) -> None:
        self._path = path
        self._format = queues
        self._first_number = base // queues.entry.size
        self._edges: tuple[int, int] | None = None

    def read_entries_between(self, start: int, end: int, max_entries: int) -> tuple[int, Array]:
        """Return the queue offset of the first entry in a range of the log, and the file's entries in the range."""
        nothing = (0, np.empty(0, _ENTRY))
        # The first and last entry of a file are kept, so that for other segments it is not opened again.
        if self._edges is not None and (self._edges[0] >= end or self._edges[1] < start):
            return nothing
        descriptor = open_file(self._path, trusted_root=self._path.parents[2])
        try:
            unit = self._format.entry.size
            count = os.fstat(descriptor).st_size // unit

            def read_sort_key(entry_number: int) -> int:
                return self._format.place_of(os.pread(descriptor, unit, entry_number * unit))

            if self._edges is None:
                # Zeros after the last entry sort after all offsets, see `place_of`.
                written = bisect_left(range(count), AFTER_ALL, key=read_sort_key)
                if not written:
                    return nothing
                self._edges = read_sort_key(0), read_sort_key(written - 1)
                if self._edges[0] >= end or self._edges[1] < start:
                    return nothing
            first = bisect_left(range(count), start, key=read_sort_key)
            stop = bisect_left(range(count), end, key=read_sort_key)
            if stop - first > max_entries:
                raise BadIndexError(
                    "the queues have more entries for this range of the log than it has room for records"
                )
            data = os.pread(descriptor, max(0, stop - first) * unit, first * unit)
        finally:
            os.close(descriptor)
        entries = self._parse_entries(data)
        kept = (entries["offset"] >= start) & (entries["offset"] < end) & (entries["size"] > 0)
        # Entries out of order have misled the bisection. Their ranges count as uncovered and are scanned.
        return (self._first_number + first, entries) if kept.all() else nothing

    def _parse_entries(self, data: bytes) -> Array:
        stored = np.frombuffer(data, np.dtype(self._format.entry.numpy_fields), len(data) // self._format.entry.size)
        entries = np.empty(len(stored), _ENTRY)
        entries["offset"], entries["size"] = stored[self._format.offset_field], stored["size"]
        return entries
