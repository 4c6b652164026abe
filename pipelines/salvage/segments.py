"""Writes the salvaged copy of one segment.

    found                                           written
    intact records                                  the same bytes, at the same offset
    a range without one, between two records        fillers of its size
    such a range up to the segment's end            a BLANK
    a segment that is missing, or has no record     a filler, and a BLANK

A range that is too small for a filler cannot stay: the records after it move towards the segment's start, up to the
next range or the segment's end, and a map lists their old and new offsets. Damage to a log of whole records never
leaves such a range, because every record is larger than the smallest filler, but a forged log can have one.

A filler is a valid record with magic, lengths and CRC, so that a broker that recovers its log continues after it. Its
transaction type is ROLLBACK, which no broker has written since 4.0 but every broker can read: it gets neither a
ConsumeQueue entry nor an index entry, so no consumer ever sees it. Its body is zeros.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from commitlake.connectors.atomic_files import open_atomic_sized
from commitlake.connectors.formats.rocketmq.kernel.records import STORE_HOST
from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.segment_walk import WalkEnd, WalkStep, walk_records
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.commitlog import (
    HEAD,
    MIN_RECORD_SIZE,
    STORED,
    NewMessage,
    serialize_blank,
    serialize_message,
)
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault
from commitlake.schemas.layouts.rocketmq.sysflag import TransactionType
from commitlake.schemas.layouts.segment_names import segment_name

TOPIC = "FILLER"
"""Topic of a filler; a filler too small for it has its first letters."""
MIN_FILLER_BYTES = MIN_RECORD_SIZE + 1
_MAX_BYTES = 4 << 20
"""Brokers hold a record in memory, and accept no larger body by default."""
_NOBODY = Host.of("0.0.0.0", 0)  # noqa: S104 (nothing listens there)
_WINDOW_BYTES = 4 << 20
_COPY_BYTES = 8 << 20
_AT_OFFSET = HEAD.offset_of("physical_offset")
_OFFSET_BYTES = 8


def make_fillers(offset: int, size: int, store_timestamp: int) -> Iterator[bytes]:
    """Yield consecutive filler records that fill a range of the log.

    Args:
        offset: physical offset of the range.
        size: size of the range, bytes; at least `MIN_FILLER_BYTES`.
        store_timestamp: store time of a neighbouring record, ms, since brokers search by the times of records.
    """
    while size:
        # The rest must have room for a record.
        piece = size if size <= _MAX_BYTES else min(_MAX_BYTES, size - MIN_FILLER_BYTES)
        yield make_filler(offset, piece, store_timestamp)
        offset += piece
        size -= piece


def make_filler(offset: int, size: int, store_timestamp: int) -> bytes:
    """Return one filler record of exactly the given size."""
    topic = TOPIC[: size - MIN_RECORD_SIZE]
    body = bytes(size - MIN_RECORD_SIZE - len(topic))
    message = NewMessage(topic, body, store_timestamp, _NOBODY, sys_flag=int(TransactionType.ROLLBACK))
    return serialize_message(
        message, queue_offset=0, physical_offset=offset, store_timestamp=store_timestamp, store_host=_NOBODY
    )


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Task that writes one segment of the clean log.

    Attributes:
        split: the part of the segment that belongs to the log; the whole segment, except for the newest.
        size: size of a segment, bytes.
        is_newest: True for the last segment, where a range without a record is the log's end.
        store_timestamp: store time of fillers before the first record, ms.
        out: the output folder.
    """

    split: Split
    size: int
    is_newest: bool
    store_timestamp: int
    out: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A range without an intact record, and what was written instead.

    Attributes:
        start: physical offset of the range.
        end: physical offset after the range.
        fault: the first fault in it; `unproven_end` for a record whose last bytes may not have been written.
        became: `make_filler`, `blank` or `moved`; `dropped` after the log's end.
    """

    start: int
    end: int
    fault: str
    became: str


@dataclass(frozen=True, slots=True)
class SegmentSalvaged:
    """Result of salvaging a segment.

    Attributes:
        records: number of intact records, which are in the new segment.
        damages: ranges without an intact record.
        moved: old and new offsets of records that had to move.
        first_time: store time of the first record, ms; 0 if there is none.
        last_time: store time of the last record, ms; 0 if there is none.
    """

    records: int
    damages: tuple[Damage, ...]
    moved: tuple[tuple[int, int], ...]
    first_time: int
    last_time: int


def salvage_segment(task: SegmentTask) -> SegmentSalvaged:
    """Write one segment of the clean log to a temporary file, sync it, and rename it."""
    base = task.split.base_offset
    path = Path(task.out) / segment_name(base)
    # Under its final name only when whole, so that a killed task leaves no half segment in its place.
    with open_atomic_sized(path, task.size) as descriptor:
        return _SegmentWriter(task, descriptor).write_segment()


@dataclass(slots=True)
class _LogRange:
    """Range of a segment with only consecutive records, or without any intact record.

    Attributes:
        start: physical offset.
        end: physical offset after it.
        fault: the fault of a range without records; None for records.
        is_closed: True for the segment's own BLANK, which is not damage.
        records: number of records.
        first_time: store time of the first record, ms.
        last_time: store time of the last record, ms.
    """

    start: int
    end: int
    fault: Fault | None = None
    is_closed: bool = False
    records: int = 0
    first_time: int = 0
    last_time: int = 0

    def join_with_next(self, next_range: _LogRange) -> _LogRange:
        """Return this range joined with the one after it, which is of the same kind."""
        records = self.records + next_range.records
        return replace(self, end=next_range.end, records=records, last_time=next_range.last_time)


class _SegmentWriter:
    """Writer of one segment of the clean log."""

    def __init__(self, task: SegmentTask, descriptor: int) -> None:
        self._task = task
        self._descriptor = descriptor
        self._base = task.split.base_offset
        self._end = self._base + task.size
        self._time = task.store_timestamp
        self._first_time = 0
        self._shift = 0
        self._damages: list[Damage] = []
        self._moved: list[tuple[int, int]] = []

    def write_segment(self) -> SegmentSalvaged:
        """Copy the intact records of the segment, and replace damaged ranges by filler records."""
        split = self._task.split
        if split.missing:
            self._fill_range(_LogRange(split.start, self._end, Fault.MISSING_SEGMENT))
            return self._to_result(0)
        records = 0
        with OpenSegment(split.path) as file:
            for stretch in self._set_filler_times(self._find_valid_and_bad_ranges(file)):
                if stretch.fault is None:
                    self._copy_records(file, stretch)
                    records += stretch.records
                else:
                    self._fill_range(stretch)
        return self._to_result(records)

    def _set_filler_times(self, log_ranges: Iterator[_LogRange]) -> Iterator[_LogRange]:
        """Pass ranges on; before the first one, set the store time for fillers before the first record."""
        first = next(log_ranges, None)
        second = next(log_ranges, None) if first is not None and first.fault is not None else None
        if second is not None:
            # A broker that recovers takes 0 as the time of a first record for an empty segment
            # (CommitLog.isMappedFileMatchedRecover).
            self._time = second.first_time
        yield from (each for each in (first, second) if each is not None)
        yield from log_ranges

    def _to_result(self, records: int) -> SegmentSalvaged:
        return SegmentSalvaged(records, tuple(self._damages), tuple(self._moved), self._first_time, self._time)

    def _find_valid_and_bad_ranges(self, file: SegmentFile) -> Iterator[_LogRange]:
        """Yield the valid and the damaged ranges of the segment in turn, up to its end or the log's."""
        split = self._task.split
        end, kept, bad = WalkEnd(), None, None
        for step in walk_records(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, end):
            for piece in _intact_and_bad_ranges(step):
                if piece.fault is None:
                    if bad is not None:
                        yield bad
                        bad = None
                    kept = piece if kept is None else kept.join_with_next(piece)
                else:
                    if kept is not None:
                        yield kept
                        kept = None
                    bad = piece if bad is None else bad.join_with_next(piece)
        if kept is not None:
            yield kept
        if bad is not None and (self._task.is_newest and end.stop != h.STOP_BLANK):
            yield bad
        elif bad is not None:
            yield replace(bad, end=self._end)
        elif end.stop == h.STOP_BLANK or not self._task.is_newest:
            # The rest is the segment's BLANK, or zeros in its place.
            begin = split.start if kept is None else kept.end
            is_closed = end.stop == h.STOP_BLANK
            if begin < self._end:
                yield _LogRange(begin, self._end, Fault.HOLE, is_closed)

    def _copy_records(self, file: SegmentFile, valid_range: _LogRange) -> None:
        window = np.empty(min(_COPY_BYTES, valid_range.end - valid_range.start), np.uint8)
        for at in range(valid_range.start, valid_range.end, _COPY_BYTES):
            part = window[: min(_COPY_BYTES, valid_range.end - at)]
            if file.read_into(part, at - self._base) < len(part):
                raise StoreError(
                    f"{self._task.split.path}: expected {len(part)} bytes at physical offset {at}, found fewer: the "
                    "file became shorter while it was read",
                    exit_code=ExitCode.FAILED,
                )
            self._write_bytes(part.data, at - self._shift)
        if self._shift:
            self._rewrite_offsets(file, valid_range)
        self._first_time = self._first_time or valid_range.first_time
        self._time = valid_range.last_time

    def _rewrite_offsets(self, file: SegmentFile, valid_range: _LogRange) -> None:
        """Write new physical offsets into records that were moved to another position."""
        split = Split(
            self._task.split.broker, self._task.split.path, self._base, valid_range.start, valid_range.end,
            self._task.split.segment_end, self._task.split.file_end, self._task.split.format,
        )  # fmt: skip
        # Walked again rather than kept, because a segment may have millions of records, and moves are rare.
        for step in walk_records(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, WalkEnd()):
            for start in (step.origin + step.parts[h.START]).tolist():
                moved = start - self._shift
                self._write_bytes(memoryview(moved.to_bytes(_OFFSET_BYTES, "big")), moved + _AT_OFFSET)
                self._moved.append((start, moved))

    def _fill_range(self, bad_range: _LogRange) -> None:
        start = bad_range.start - self._shift
        size = bad_range.end - start
        if bad_range.end == self._end:
            became = "blank"
            if start == self._base:  # brokers expect a record at a segment's start
                first = next(make_fillers(start, MIN_FILLER_BYTES, self._time))
                self._write_bytes(memoryview(first), start)
                start, size = start + len(first), size - len(first)
            self._write_bytes(memoryview(serialize_blank(size)), start)
        elif size >= MIN_FILLER_BYTES:
            became = "filler"
            for record in make_fillers(start, size, self._time):
                self._write_bytes(memoryview(record), start)
                start += len(record)
            # From here on, records are at their own offsets again: the filler has used up the space that was left.
            self._shift = 0
        else:
            became, self._shift = "moved", size
        if bad_range.fault is not None and not bad_range.is_closed:
            self._damages.append(Damage(bad_range.start, bad_range.end, bad_range.fault.value, became))

    def _write_bytes(self, data: memoryview, offset: int) -> None:
        position, written = offset - self._base, 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)


def _intact_and_bad_ranges(step: WalkStep) -> Iterator[_LogRange]:
    """Yield the ranges of consecutive records and the damaged ranges of one scanning step, in log order."""
    starts = step.origin + step.parts[h.START]
    ends = step.origin + step.parts[h.PROPERTIES] + step.parts[h.PROPERTIES_LENGTH]
    first = 0
    for bad in [*step.bad, None]:
        stop = len(starts) if bad is None else int(np.searchsorted(starts, bad.start))
        if stop > first:
            start, end = int(starts[first]), int(ends[stop - 1])
            times = _record_store_time(step, first), _record_store_time(step, stop - 1)
            yield _LogRange(start, end, None, False, stop - first, *times)
        first = stop
        if bad is not None:
            yield _LogRange(bad.start, bad.end, bad.fault)


def _record_store_time(step: WalkStep, row: int) -> int:
    at = int(step.parts[STORE_HOST, row]) - STORED.size
    time: int = STORED.unpack(step.window[at : at + STORED.size].tobytes())[0]
    return time
