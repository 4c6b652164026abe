"""One segment, written anew.

    what is there                                   what is written
    intact records                                  the same bytes, at the same offset
    a range without one, between two records        fillers of its size
    such a range up to the segment's end            a BLANK
    a segment that is missing, or has no record     a filler, and a BLANK

A range that is too small for a filler cannot be left: the records behind it move up, to the next range or to the end of
the segment, and a map tells of each where it was and where it is. No damage to a log of whole records leaves such a
range, as every record is larger than the smallest filler; a forged one can.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from commitlake.connectors.formats.engine.errors import SegmentCutError
from commitlake.connectors.formats.engine.files import OpenSegment, SegmentFile
from commitlake.connectors.formats.engine.kernel import hop as h
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.walk import End, Step, walk
from commitlake.connectors.formats.rocketmq.kernel.records import STORE_HOST
from commitlake.connectors.whole_files import write_sized
from commitlake.pipelines.salvage.fillers import MIN_FILLER_BYTES, fillers
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED, serialize_blank
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault
from commitlake.schemas.layouts.segments import segment_name

_WINDOW_BYTES = 4 << 20
_COPY_BYTES = 8 << 20
_AT_OFFSET = HEAD.offset_of("physical_offset")
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """One segment.

    Attributes:
        split: all of it that the log has; its end is the segment's, but for the newest.
        size: bytes of a segment.
        is_newest: nothing comes behind it: what has no record there is the log's end.
        store_timestamp: ms, for fillers before the first record.
        out: the folder that gets it.
    """

    split: Split
    size: int
    is_newest: bool
    store_timestamp: int
    out: str


@dataclass(frozen=True, slots=True)
class Damage:
    """A range without an intact record, and what became of it.

    Attributes:
        start: physical offset.
        end: behind it.
        fault: the first fault in it; `unproven_end` for a record that nothing proves to be written to its end.
        became: `filler`, `blank` or `moved`; `dropped` behind the log's end.
    """

    start: int
    end: int
    fault: str
    became: str


@dataclass(frozen=True, slots=True)
class SegmentSalvaged:
    """What came of a segment.

    Attributes:
        records: that are intact, and in the new segment.
        damages: what is not.
        moved: offsets of records that are not at their own: before, now.
        first_time: store time of the first record, ms; 0 where there is none.
        last_time: store time of the last record, ms; 0 where there is none.
    """

    records: int
    damages: tuple[Damage, ...]
    moved: tuple[tuple[int, int], ...]
    first_time: int
    last_time: int


def salvage_segment(task: SegmentTask) -> SegmentSalvaged:
    """Write one segment, beside its place, synced, and renamed."""
    base = task.split.base_offset
    path = Path(task.out) / segment_name(base)
    with write_sized(path, task.size) as descriptor:
        return _Writer(task, descriptor).run()


@dataclass(slots=True)
class _Stretch:
    """Records that follow one another, or a range without one.

    Attributes:
        start: physical offset.
        end: behind it.
        fault: of a range without records.
        is_closed: of such a range: it is the segment's own BLANK, and no damage.
        records: how many.
        first_time: store time of the first, ms.
        last_time: of the last.
    """

    start: int
    end: int
    fault: Fault | None = None
    is_closed: bool = False
    records: int = 0
    first_time: int = 0
    last_time: int = 0

    def joined(self, behind: _Stretch) -> _Stretch:
        """With what follows it, of the same kind."""
        records = self.records + behind.records
        return replace(self, end=behind.end, records=records, last_time=behind.last_time)


class _Writer:
    """Writes one segment."""

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

    def run(self) -> SegmentSalvaged:
        """Write all of it."""
        split = self._task.split
        if split.missing:
            self._fill(_Stretch(split.start, self._end, Fault.MISSING_SEGMENT))
            return self._salvaged(0)
        records = 0
        with OpenSegment(split.path) as file:
            for stretch in self._with_times(self._stretches(file)):
                if stretch.fault is None:
                    self._keep(file, stretch)
                    records += stretch.records
                else:
                    self._fill(stretch)
        return self._salvaged(records)

    def _with_times(self, stretches: Iterator[_Stretch]) -> Iterator[_Stretch]:
        """The same; a range before the first record takes its time from there."""
        first = next(stretches, None)
        second = next(stretches, None) if first is not None and first.fault is not None else None
        if second is not None:
            self._time = second.first_time
        yield from (each for each in (first, second) if each is not None)
        yield from stretches

    def _salvaged(self, records: int) -> SegmentSalvaged:
        return SegmentSalvaged(records, tuple(self._damages), tuple(self._moved), self._first_time, self._time)

    def _stretches(self, file: SegmentFile) -> Iterator[_Stretch]:
        """Records and ranges without, in turn, up to the segment's end, or of the newest one to the log's."""
        split = self._task.split
        end, kept, bad = End(), None, None
        for step in walk(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, end):
            for piece in _pieces(step):
                if piece.fault is None:
                    if bad is not None:
                        yield bad
                        bad = None
                    kept = piece if kept is None else kept.joined(piece)
                else:
                    if kept is not None:
                        yield kept
                        kept = None
                    bad = piece if bad is None else bad.joined(piece)
        if kept is not None:
            yield kept
        if bad is not None and (self._task.is_newest and end.stop != h.STOP_BLANK):
            yield bad
        elif bad is not None:
            yield replace(bad, end=self._end)
        elif end.stop == h.STOP_BLANK or not self._task.is_newest:
            # What is left is the segment's BLANK, or zeros where one should be.
            begin = split.start if kept is None else kept.end
            is_closed = end.stop == h.STOP_BLANK
            if begin < self._end:
                yield _Stretch(begin, self._end, Fault.HOLE, is_closed)

    def _keep(self, file: SegmentFile, stretch: _Stretch) -> None:
        window = np.empty(min(_COPY_BYTES, stretch.end - stretch.start), np.uint8)
        for at in range(stretch.start, stretch.end, _COPY_BYTES):
            part = window[: min(_COPY_BYTES, stretch.end - at)]
            if file.read_into(part, at - self._base) < len(part):
                raise SegmentCutError(
                    f"{self._task.split.path}: expected {len(part)} bytes at {at}, found it cut short"
                )
            self._write(part.data, at - self._shift)
        if self._shift:
            self._renumber(file, stretch)
        self._first_time = self._first_time or stretch.first_time
        self._time = stretch.last_time

    def _renumber(self, file: SegmentFile, stretch: _Stretch) -> None:
        """Give records that move their new offsets."""
        split = Split(
            self._task.split.broker, self._task.split.path, self._base, stretch.start, stretch.end,
            self._task.split.segment_end, self._task.split.file_end, self._task.split.format,
        )  # fmt: skip
        for step in walk(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, End()):
            for start in (step.origin + step.parts[h.START]).tolist():
                moved = start - self._shift
                self._write(memoryview(moved.to_bytes(_OFFSET_BYTES, "big")), moved + _AT_OFFSET)
                self._moved.append((start, moved))

    def _fill(self, stretch: _Stretch) -> None:
        start = stretch.start - self._shift
        size = stretch.end - start
        if stretch.end == self._end:
            became = "blank"
            if start == self._base:  # brokers look at a segment's first record
                first = next(fillers(start, MIN_FILLER_BYTES, self._time))
                self._write(memoryview(first), start)
                start, size = start + len(first), size - len(first)
            self._write(memoryview(serialize_blank(size)), start)
        elif size >= MIN_FILLER_BYTES:
            became = "filler"
            for record in fillers(start, size, self._time):
                self._write(memoryview(record), start)
                start += len(record)
            self._shift = 0
        else:
            became, self._shift = "moved", size
        if stretch.fault is not None and not stretch.is_closed:
            self._damages.append(Damage(stretch.start, stretch.end, stretch.fault.value, became))

    def _write(self, data: memoryview, offset: int) -> None:
        position, written = offset - self._base, 0
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], position + written)


def _pieces(step: Step) -> Iterator[_Stretch]:
    """The records of a step that follow one another, and its bad ranges, in their order."""
    starts = step.origin + step.parts[h.START]
    ends = step.origin + step.parts[h.PROPERTIES] + step.parts[h.PROPERTIES_LENGTH]
    first = 0
    for bad in [*step.bad, None]:
        behind = len(starts) if bad is None else int(np.searchsorted(starts, bad.start))
        if behind > first:
            start, end = int(starts[first]), int(ends[behind - 1])
            times = _store_time(step, first), _store_time(step, behind - 1)
            yield _Stretch(start, end, None, False, behind - first, *times)
        first = behind
        if bad is not None:
            yield _Stretch(bad.start, bad.end, bad.fault)


def _store_time(step: Step, row: int) -> int:
    at = int(step.parts[STORE_HOST, row]) - STORED.size
    time: int = STORED.unpack(step.window[at : at + STORED.size].tobytes())[0]
    return time
