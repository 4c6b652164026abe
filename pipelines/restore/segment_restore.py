"""Restores one segment: reads its rows, writes it under a temporary name, fills the gaps, syncs and renames it.

A range without a record gets fillers between records, and a BLANK up to the end of the segment. A range smaller than
the smallest filler cannot be filled, so the record after it is left out as well. The log of a broker has no such range;
rows that no broker wrote, or a wrong segment size, can lead to one.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from deltalake import DeltaTable

from commitlake.connectors.atomic_files import open_atomic_sized
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.restore.body_copying import BodySource, copy_bodies
from commitlake.pipelines.restore.log_rows import rows_of_segment
from commitlake.pipelines.restore.record_arrays import Records, Refusal
from commitlake.pipelines.restore.record_writer import RecordWriter
from commitlake.pipelines.salvage.segments import MIN_FILLER_BYTES, make_fillers
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.commitlog import END_RESERVE, serialize_blank
from commitlake.schemas.layouts.segment_names import segment_name

_NO_ROOM = "no room for a filler next to it"


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Task that restores one segment of the log.

    Attributes:
        broker: name of the store.
        base: physical offset of its start.
        size: its size in bytes.
        start: start of the restored range.
        end: end of the restored range.
        time: store time of the last record before it, ms.
        folder: the folder for the file.
    """

    broker: str
    base: int
    size: int
    start: int
    end: int
    time: int
    folder: Path

    @property
    def is_newest(self) -> bool:
        """True if the restored log ends in this segment."""
        return self.end <= self.base + self.size

    @property
    def path(self) -> Path:
        """The final path of the segment."""
        return self.folder / segment_name(self.base)


@dataclass(frozen=True, slots=True)
class UnrestoredRecord:
    """Record that was not restored as a whole, with the reason.

    Attributes:
        start: physical offset.
        size: size of the record in bytes.
        reason: the reason in words.
        is_body: true if only the body is missing.
    """

    start: int
    size: int
    reason: str
    is_body: bool


@dataclass(frozen=True, slots=True)
class SegmentRestored:
    """Result of restoring a segment: its records, its fillers and its losses.

    Attributes:
        records: number of records.
        bytes: size of the records.
        made_up: offsets of records with a text of properties that is not, or may not be, the broker's.
        by_rule: number of records that repeat the properties of a batch, as brokers do.
        lost: rows that did not become records.
        filled: ranges that became fillers: start, end.
        first: physical offset and size of the first record; None if there is no record.
        blank: physical offset of the BLANK; None if there is none.
        last_time: store time of the last record, ms; without one, of the last record before the segment.
    """

    records: int
    bytes: int
    made_up: tuple[int, ...]
    by_rule: int
    lost: tuple[UnrestoredRecord, ...]
    filled: tuple[tuple[int, int], ...]
    first: tuple[int, int] | None
    blank: int | None
    last_time: int


def restore_segment(table: DeltaTable, bodies: BodySource, task: SegmentTask) -> SegmentRestored:
    """Write one segment of the log from rows of `messages` and bodies in packs.

    Args:
        bodies: where the bodies are.
    """
    with open_atomic_sized(task.path, task.size) as descriptor:
        return _write_segment(descriptor, table, bodies, task)


def _write_segment(descriptor: int, table: DeltaTable, bodies: BodySource, task: SegmentTask) -> SegmentRestored:
    batches = rows_of_segment(table, task.broker, max(task.start, task.base), min(task.end, task.base + task.size))
    first = next((batch for batch in batches if batch.num_rows), None)
    # A segment of fillers only is written without mapping it.
    if first is None:
        data = empty_segment_bytes(task.base, task.size, task.time)
        os.pwrite(descriptor, data, 0)
        end = min(task.end, task.base + task.size)
        return SegmentRestored(0, 0, (), 0, (), ((task.base, end),), None, None, task.time)
    try:
        # Mapped memory needs its disk space now: a full disk would otherwise end the process during a write.
        os.posix_fallocate(descriptor, 0, task.size)
    except OSError as error:
        raise UsageError(
            f"{task.path}: {task.size} bytes of free disk are needed for this segment: {error.strerror}"
        ) from None
    memory = mmap.mmap(descriptor, task.size)
    out = np.frombuffer(memory, np.uint8)
    writer = RecordWriter(out, task.base)
    for batch in chain([first], batches):
        writer.write_rows(batch)
    records = writer.finish()
    restored = _add_bodies_and_fillers(out, records, writer.packs, bodies, task)
    # A memory map cannot be closed while arrays refer to it.
    del out, writer
    memory.close()
    return restored


def _add_bodies_and_fillers(
    segment_bytes: Array, records: Records, packs: list[str], bodies: BodySource, task: SegmentTask
) -> SegmentRestored:
    """Copy bodies into a segment, remove records without a body, and fill the gaps with filler records."""
    lost = [
        UnrestoredRecord(
            int(records.starts[row]), int(records.sizes[row]), Refusal(int(records.refusals[row])).text, False
        )
        for row in np.flatnonzero(records.refusals).tolist()
    ]
    # Refused rows have no bytes in the segment.
    records = records.select_rows(records.refusals == Refusal.NONE)
    without = copy_bodies(bodies, records, packs, segment_bytes, task.base)
    lost += [
        _erase_lost_record(segment_bytes, records, row, reason, task, is_body_lost=True)
        for row, reason in without.items()
    ]
    if without:
        # Their places became zeros above, and are filled below.
        records = records.select_rows(np.delete(np.arange(len(records.starts)), list(without)))
    end = task.base + task.size
    fits = select_fitting_records(
        records.starts, records.starts + records.sizes, task.base, end, is_closed=not task.is_newest
    )
    lost += [
        _erase_lost_record(segment_bytes, records, row, _NO_ROOM, task, is_body_lost=False)
        for row in np.flatnonzero(~fits).tolist()
    ]
    records = records.select_rows(fits)
    if not len(records.starts):
        data = empty_segment_bytes(task.base, task.size, task.time)
        segment_bytes[: len(data)] = np.frombuffer(data, np.uint8)
        nothing = (task.base, min(task.end, end))
        return SegmentRestored(0, 0, (), 0, tuple(lost), (nothing,), None, None, task.time)
    ends = records.starts + records.sizes
    filled = find_gaps(records.starts, ends, records.times, task.base)
    for stretch in filled:
        write_fillers(segment_bytes, task.base, stretch)
    blank = None
    if not task.is_newest:
        blank = int(ends[-1])
        write_blank(segment_bytes, blank - task.base)
    return SegmentRestored(
        records=len(records.starts),
        bytes=int(records.sizes.sum()),
        made_up=tuple(records.starts[records.made_up.astype(bool)].tolist()),
        by_rule=int(np.count_nonzero(records.by_rule)),
        lost=tuple(sorted(lost, key=lambda each: each.start)),
        filled=tuple((each.start, each.end) for each in filled),
        first=(int(records.starts[0]), int(records.sizes[0])),
        blank=blank,
        last_time=int(records.times[-1]),
    )


def _erase_lost_record(
    segment_bytes: Array, records: Records, row: int, reason: str, task: SegmentTask, *, is_body_lost: bool
) -> UnrestoredRecord:
    """Overwrite a record in a segment with zeros, and return what was lost."""
    start, size = int(records.starts[row]), int(records.sizes[row])
    # Otherwise a broker would take the rest of the record for one.
    segment_bytes[start - task.base : start - task.base + size] = 0
    return UnrestoredRecord(start, size, reason, is_body_lost)


class SegmentGap(NamedTuple):
    """A range of the log without a record, between two records or before the first.

    Attributes:
        start: physical offset.
        end: offset after it.
        time: store time of its fillers, ms.
    """

    start: int
    end: int
    time: int


def select_fitting_records(starts: Array, ends: Array, base_offset: int, end: int, *, is_closed: bool) -> Array:
    """Return a mask of the records to keep, so that each gap between them has room for a filler or BLANK.

    Args:
        starts: physical offsets, in order.
        ends: offset after each record.
        base_offset: physical offset of the start of the segment.
        end: offset after the end of the segment.
        is_closed: true if a BLANK follows the last record.
    """
    kept = np.ones(len(starts), bool)
    # The end of the record before each.
    reached = np.concatenate([[base_offset], ends[:-1]])
    small = (starts > reached) & (starts - reached < MIN_FILLER_BYTES)
    for row in np.flatnonzero(small).tolist():
        before = np.flatnonzero(kept[:row])
        reaches = int(ends[before[-1]]) if len(before) else base_offset
        # The record before may have been left out itself, which makes room for a filler.
        if starts[row] - reaches < MIN_FILLER_BYTES:
            kept[row] = False
    last = np.flatnonzero(kept)
    if is_closed and len(last) and end - ends[last[-1]] < END_RESERVE:
        kept[last[-1]] = False
    return kept


def find_gaps(starts: Array, ends: Array, times: Array, base_offset: int) -> list[SegmentGap]:
    """Return the ranges between records and before the first one, which fillers must cover."""
    if not len(starts):
        return []
    reached = np.concatenate([[base_offset], ends[:-1]])
    found = []
    for row in np.flatnonzero(starts > reached).tolist():
        time = int(times[max(0, row - 1)])  # brokers search records by time
        found.append(SegmentGap(int(reached[row]), int(starts[row]), time))
    return found


def write_fillers(segment_bytes: Array, base_offset: int, gap: SegmentGap) -> None:
    """Fill a gap with filler records, in the segment that begins at `base_offset`."""
    at = gap.start - base_offset
    for record in make_fillers(gap.start, gap.end - gap.start, gap.time):
        segment_bytes[at : at + len(record)] = np.frombuffer(record, np.uint8)
        at += len(record)


def write_blank(segment_bytes: Array, position: int) -> None:
    """Write a BLANK (the record that closes a segment) from a position to the end of the segment."""
    blank = serialize_blank(len(segment_bytes) - position)
    segment_bytes[position : position + len(blank)] = np.frombuffer(blank, np.uint8)


def empty_segment_bytes(base_offset: int, size: int, filler_time: int) -> bytes:
    """Return the first bytes of a segment without messages: one filler record, which brokers need, and a BLANK."""
    first = next(make_fillers(base_offset, MIN_FILLER_BYTES, filler_time))
    return first + serialize_blank(size - len(first))


@dataclass(frozen=True, slots=True)
class LakeVersion:
    """Version of a lake from which segments are restored, with options for reading bodies.

    Attributes:
        lake: where the tables are.
        version: version of `messages`.
        skip: leave out the records whose bodies cannot be read; otherwise the first one is an error.
        threads: how many packs are read at the same time for one segment.
        run: identifies the run.
    """

    lake: Lake
    version: int
    skip: bool
    threads: int
    run: str


def run_segment_task(lake_version: LakeVersion, task: SegmentTask) -> SegmentRestored:
    """Restore one segment in any process, with tables and packs that the process keeps open."""
    bodies = BodySource(open_pack_store(lake_version.lake.packs), lake_version.skip, lake_version.threads)
    return restore_segment(_open_lake_version(lake_version), bodies, task)


@lru_cache(1)
def _open_lake_version(lake_version: LakeVersion) -> DeltaTable:
    """Open `messages` once per process for all segments of a run, without verifying its Delta log again."""
    return lake_version.lake.table_at("messages", lake_version.version)
