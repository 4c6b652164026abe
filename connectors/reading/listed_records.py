"""Reader of the records of a `ListedSplit`, window by window, like `segment_walk.walk_records` for a byte range.

Neighbouring records are read together with the bytes between them if these are few, because one larger read costs less
than two. All reads of one step go into one window, so a batch has many records even if they are far apart. Every record
is examined as in a scan, and must match the index. A body with a wrong CRC and a truncated file are damage of the log,
which is handled by the mode. Anything else is an error in any mode: if the index is wrong about one record, it cannot
be trusted for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import IndexMismatchError
from commitlake.connectors.reading.files.segment_files import Window
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.kernel.memory_access import PADDING
from commitlake.connectors.reading.read_request import Filters
from commitlake.connectors.reading.segment_walk import WalkStep
from commitlake.connectors.reading.splits import ListedSplit, group_nearby_records
from commitlake.schemas.layouts.rocketmq.scan import Fault, SpanKind

_WINDOW_SPAN = 64 << 20
_STEP_RECORDS = 8192


def walk_listed_records(
    file: SegmentFile, split: ListedSplit, window_bytes: int, max_record_bytes: int
) -> Iterator[WalkStep]:
    """Read the records that an index lists, and yield them in groups, with the damaged ones as bad ranges.

    Args:
        file: the open segment.
        split: the records to read.
        window_bytes: bytes to read at a time; a larger record is read as a whole.
        max_record_bytes: larger sizes are faults.

    Raises:
        IndexMismatchError: if there is not the listed record at an offset.
    """
    reader = _ListedRecordReader(split, max_record_bytes)
    for first, last in _divide_into_steps(reader.offsets, reader.ends, reader.read_together, window_bytes):
        origin = int(reader.offsets[first])
        # Records keep their distances in the window, because untouched pages take no memory.
        buffer = np.empty(int(reader.ends[last - 1]) - origin + PADDING, np.uint8)
        reader.fill_window(buffer, file, first, last)
        parts, bad = reader.locate_step_records(buffer, first, last)
        yield WalkStep(buffer, origin, parts, bad)


def select_wanted_parts(step: WalkStep, filters: Filters, log_format: Format) -> Array:
    """Return the positions of those located records that pass the filters for topic, queue, offset and time."""
    parts, kernel = step.parts, log_format.kernel
    starts = parts[record_walk.START]
    kept = np.ones(parts.shape[1], bool)
    if filters.topics is not None:
        topics = [name.encode() for name in filters.topics if isinstance(name, str)]
        kept &= np.logical_or.reduce(
            [np.zeros_like(kept), *(_topic_record_mask(step.window, parts, topic) for topic in topics)]
        )
    if filters.queue_ids is not None:
        kept &= np.isin(kernel.queue_ids(step.window, parts), list(filters.queue_ids))
    _restrict_mask_to_range(kept, step.origin + starts, filters.min_offset, filters.end_offset)
    if filters.min_store_timestamp is not None or filters.end_store_timestamp is not None:
        times = kernel.store_times(step.window, parts)
        _restrict_mask_to_range(kept, times, filters.min_store_timestamp, filters.end_store_timestamp)
    return np.ascontiguousarray(parts[:, kept])


def _restrict_mask_to_range(mask: Array, values: Array, minimum: int | None, end: int | None) -> None:
    if minimum is not None:
        mask &= values >= minimum
    if end is not None:
        mask &= values < end


def _divide_into_steps(
    offsets: Array, ends: Array, rows_read_with_previous: Array, window_bytes: int
) -> Iterator[tuple[int, int]]:
    """Yield the index ranges into which the listed records are divided, each to be read into one window.

    With the bytes read between them they fit in a window, and they are not too far apart; a larger record is alone.
    """
    # The first record of a read counts with its own size, each other one with the bytes since the record before it.
    taken = np.where(
        np.isin(np.arange(len(offsets)), rows_read_with_previous), ends - offsets, np.diff(ends, prepend=offsets[0])
    )
    read_sizes = np.cumsum(taken)
    first = 0
    while first < len(offsets):
        before = int(read_sizes[first - 1]) if first else 0
        by_bytes = int(np.searchsorted(read_sizes, before + window_bytes, "right"))
        by_distance = int(np.searchsorted(ends, offsets[first] + max(window_bytes, _WINDOW_SPAN), "right"))
        # At least one record, even if it alone is larger than a window.
        last = max(first + 1, min(by_bytes, by_distance, first + _STEP_RECORDS))
        yield first, last
        first = last


class _ListedRecordReader:
    """Reader of the records of one split that an index lists, a group of records at a time."""

    def __init__(self, split: ListedSplit, max_record_bytes: int) -> None:
        self._split = split
        self._max_record_bytes = max_record_bytes
        self.offsets = split.field_array("offsets")
        self.sizes = split.field_array("sizes")
        self.ends = self.offsets + self.sizes
        self.read_together = group_nearby_records(self.offsets, self.sizes)[:-1]
        self._read_to = np.zeros(len(self.offsets), np.int64)
        self._state = np.zeros(record_walk.STATE_SIZE, np.int64)
        self._faults = np.empty((2, 3), np.int64)
        self._kernel = split.format.kernel
        self._parts = np.empty((self._kernel.part_count, 0), np.int64)

    def fill_window(self, window: Window, file: SegmentFile, first: int, last: int) -> None:
        """Read the bytes of the listed records from `first` to before `last` into a window."""
        origin = int(self.offsets[first])
        edges = [first, *self.read_together[(self.read_together > first) & (self.read_together < last)].tolist(), last]
        for begin, end in pairwise(edges):
            start, stop = int(self.offsets[begin]), int(self.ends[end - 1])
            length = file.read_into(window[start - origin : stop - origin], start - self._split.base_offset)
            self._read_to[begin:end] = start + length

    def locate_step_records(self, window: Window, first: int, last: int) -> tuple[Array, list[BadRange]]:
        """Locate listed records in a window, check them, and return their positions and the ranges of damaged ones."""
        if self._parts.shape[1] < last - first + 2:
            self._parts = np.empty((self._kernel.part_count, last - first + 2), np.int64)
        origin = int(self.offsets[first])
        self._state[record_walk.RECORDS] = 0
        bad: list[BadRange] = []
        good: list[Array] = []
        for begin, end in _runs_of_adjacent_records(self.offsets, self.ends, first, last):
            before = int(self._state[record_walk.RECORDS])
            # Adjacent records are examined in one call of the kernel. Only if that finds anything unexpected is each
            # examined alone, to find which one it is.
            if self._examine_run(window, origin, begin, end) and self._matches_listing(before, origin, begin, end):
                good.append(np.arange(begin, end))
                continue
            # The run may have added some records before it failed.
            self._state[record_walk.RECORDS] = before
            for row in range(begin, end):
                fault = self._examine_record(window, origin, row)
                if fault is None:
                    good.append(np.arange(row, row + 1))
                else:
                    bad.append(fault)
        rows = np.concatenate([np.empty(0, np.int64), *good])
        parts = self._parts[:, : len(rows)]
        if self._split.queues:
            self._check_queue_fields(window, parts, rows)
        return parts, bad

    def _examine_run(self, window: Window, window_offset: int, begin: int, end: int) -> bool:
        """Return whether adjacent records are intact and at the listed offsets; if so, append their positions."""
        state, split = self._state, self._split
        before, stop = int(state[record_walk.RECORDS]), int(self.ends[end - 1])
        if stop > self._read_to[begin]:
            return False
        state[record_walk.POSITION], state[record_walk.BAD_START], state[record_walk.FAULTS] = (
            self.offsets[begin],
            -1,
            0,
        )
        self._kernel.hop(
            window, stop - window_offset, window_offset, stop, split.segment_end, split.file_end,
            self._max_record_bytes, True, state, self._parts, self._faults,
        )  # fmt: skip
        return bool(
            # All four: a false size, one record that claims the bytes of two, and damage each leave one of them
            # different.
            state[record_walk.STOP] == record_walk.STOP_LIMIT
            and state[record_walk.FAULTS] == 0
            and state[record_walk.RECORDS] - before == end - begin
            and state[record_walk.POSITION] == stop
        )

    def _matches_listing(self, first_part: int, window_offset: int, begin: int, end: int) -> bool:
        """Return whether the located records of a run begin at the offsets that the index lists."""
        starts = window_offset + self._parts[record_walk.START, first_part : first_part + end - begin]
        return bool((starts == self.offsets[begin:end]).all())

    def _examine_record(self, window: Window, window_offset: int, row: int) -> BadRange | None:
        """Append a record's position and return None if the record is intact; else return its bad range."""
        before = int(self._state[record_walk.RECORDS])
        if self._examine_run(window, window_offset, row, row + 1) and self._matches_listing(
            before, window_offset, row, row + 1
        ):
            return None
        self._state[record_walk.RECORDS] = before
        start, size = int(self.offsets[row]), int(self.sizes[row])
        if start + size > self._read_to[row]:
            return BadRange(start, start + size, Fault.CUT)
        bounds = self._split.record_size_limits(self._max_record_bytes)
        view = window.data[: start + size - window_offset]
        finding = self._split.format.record_rules.examine(view, start - window_offset, start, bounds)
        # Damage of the log, not of the index: the size agrees with the index, and only the body is wrong.
        if finding.fault is Fault.BODY_CRC and finding.size == size:
            return BadRange(start, start + size, Fault.BODY_CRC)
        if finding.kind is SpanKind.RECORD:
            raise self._mismatch_error(row, f"a record of {size} bytes", f"one of {finding.size}")
        if finding.kind is SpanKind.MORE:
            raise self._mismatch_error(row, f"a record of {size} bytes", "a larger one")
        found = f"{finding.fault} {finding.found}" if finding.fault else f"{finding.kind}"
        raise self._mismatch_error(row, f"a record of {size} bytes", found)

    def _check_queue_fields(self, window: Window, record_parts: Array, rows: Array) -> None:
        """Check that records have the topic, queue id and queue offset that the index lists."""
        split = self._split
        numbers = split.field_array("queue_numbers")[rows]
        queue_ids = np.array([queue_id for _, queue_id in split.queues], np.int64)[numbers]
        self._check_field_values("queue id", rows, queue_ids, self._kernel.queue_ids(window, record_parts))
        queue_offsets = split.field_array("queue_offsets")[rows]
        found = self._kernel.queue_offsets(window, record_parts)
        self._check_field_values("queue offset", rows, queue_offsets, found)
        topics = [topic for topic, _ in split.queues]
        for topic in dict.fromkeys(topics):
            of_topic = np.flatnonzero(np.array([name == topic for name in topics], bool)[numbers])
            wrong = of_topic[~_topic_record_mask(window, record_parts[:, of_topic], topic.encode())]
            if len(wrong):
                place = int(wrong[0])
                start, size = (
                    int(record_parts[record_walk.TOPIC, place]),
                    int(record_parts[record_walk.TOPIC_LENGTH, place]),
                )
                name = window[start : start + size].tobytes().decode("utf-8", "replace")
                raise self._mismatch_error(int(rows[place]), f"topic {topic!r}", f"{name!r}")

    def _check_field_values(self, field: str, rows: Array, expected: Array, found: Array) -> None:
        wrong = np.flatnonzero(expected != found)
        if len(wrong):
            place = wrong[0]
            raise self._mismatch_error(int(rows[place]), f"{field} {expected[place]}", f"{found[place]}")

    def _mismatch_error(self, row: int, expected: str, found: str) -> IndexMismatchError:
        split, start = self._split, int(self.offsets[row])
        index = "an IndexFile"
        if split.queues:
            topic, queue_id = split.queues[split.field_array("queue_numbers")[row]]
            queue_offset, queue_name = (
                split.field_array("queue_offsets")[row],
                split.format.queues.lookup_queue_format.name,
            )
            index = f"entry {queue_offset} of the {queue_name} {topic}/{queue_id}"
        return IndexMismatchError(
            f"{split.path}, byte {start - split.base_offset} (physical offset {start}): expected {expected}, according "
            f"to {index}, found {found}. The broker's index contradicts its log: "
            "make a new one with 'commitlake rebuild', or read with the Spark option useIndexes=false"
        )


def _runs_of_adjacent_records(offsets: Array, ends: Array, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the index ranges of listed records that follow each other in the log without gaps."""
    breaks = np.flatnonzero(offsets[first + 1 : last] != ends[first : last - 1]) + first + 1
    edges = [first, *breaks.tolist(), last]
    yield from pairwise(edges)


def _topic_record_mask(window: Window, record_parts: Array, topic: bytes) -> Array:
    """Return a mask of the records that have the given topic."""
    same: Array = record_parts[record_walk.TOPIC_LENGTH] == len(topic)
    rows = np.flatnonzero(same)
    # All topics of that length as one matrix. A row's bytes lie within the record, because its lengths were checked.
    found = window[record_parts[record_walk.TOPIC, rows][:, None] + np.arange(len(topic))]
    same[rows] = (found == np.frombuffer(topic, np.uint8)).all(axis=1)
    return same
