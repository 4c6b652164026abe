"""The second pass for the index: writes IndexFiles, one task each, since their keys are known from the first pass.

A file has one entry fewer than it has room for. A broker makes the next file for the first record after the last key
that fits, whether that record has a key or not, and copies the previous file's end into its header. Only the name
differs from the broker's, which is the time of creation: here it is the store time of the first entry in the
westernmost time zone, so that the names of all files that a broker makes later sort after it.
"""

from __future__ import annotations

import datetime
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from commitlake.connectors.atomic_files import move_synced
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.rebuild import index_entries
from commitlake.pipelines.rebuild.part_files import PartReader, RecordKeys, Totals
from commitlake.pipelines.rebuild.queue_building import prefix_sums
from commitlake.pipelines.rebuild.settings import INDEX, Settings
from commitlake.schemas.layouts.rocketmq.indexfile import (
    ENTRY,
    HEADER,
    Geometry,
    Header,
    parse_header,
    serialize_header,
)
from commitlake.schemas.safe_store_files import create_file, open_file

_AT_ONCE = 1 << 16
_NAME_LENGTH = 17
_WESTERNMOST = datetime.timedelta(hours=-12)
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (moved to the zone by hand)
_DAY_MS = 86_400_000
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999."""


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Task that writes one IndexFile.

    Attributes:
        number: number of the file, from 0.
        first: number of its first key, counted over the whole log.
        end: number after its last key.
        parts: paths of the parts with these keys and the one before them, in log order.
        part_ends: number of keys before each of these parts, and after the last one.
        work: folder for unfinished files.
        settings: the broker's settings.
    """

    number: int
    first: int
    end: int
    parts: tuple[str, ...]
    part_ends: tuple[int, ...]
    work: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class BuiltIndexFile:
    """Result of writing one IndexFile, which does not have its final name yet.

    Attributes:
        path: its path.
        header: its header.
        is_full: True if it has room for no more entries.
    """

    path: str
    header: Header
    is_full: bool


def plan_index_tasks(
    totals: Sequence[Totals], part_paths: Sequence[str], work_folder: Path, settings: Settings
) -> list[IndexTask]:
    """Return a task for every IndexFile; none if the log has no record.

    Args:
        totals: totals of each part.
        part_paths: paths of the parts.
        work_folder: folder for unfinished files.
    """
    ends = prefix_sums([each.keys for each in totals])
    # Entry 0 is never used by brokers.
    room, keys = settings.index_entries - 1, ends[-1]
    last_record = max((each.last_offset for each in totals), default=-1)
    last_keyed = max((each.last_keyed for each in totals), default=-1)
    if last_record < 0:
        return []
    files = max(1, -(-keys // room))
    # The last file is full, and a record without a key follows: for this one, too, a broker makes the next file.
    if keys and keys % room == 0 and last_record > last_keyed:
        files += 1
    tasks = []
    for number in range(files):
        first, end = number * room, min(keys, (number + 1) * room)
        # From the part with the key before the first one, whose time and offset begin the header.
        begin = max(0, bisect_right(ends, max(0, first - 1)) - 1)
        stop = bisect_left(ends, end)
        of_file, their_ends = tuple(part_paths[begin:stop]), tuple(ends[begin : stop + 1])
        tasks.append(IndexTask(number, first, end, of_file, their_ends, str(work_folder), settings))
    return tasks


def build_index(task: IndexTask) -> BuiltIndexFile:
    """Write one IndexFile and sync it, unless an earlier run has written it.

    Raises:
        UsageError: if a part is damaged.
    """
    geometry = task.settings.index_geometry
    path = Path(task.work) / f"index-{task.number:08d}"
    is_full = task.end - task.first == geometry.entries - 1
    if os.path.lexists(path):  # from a run that was interrupted
        return BuiltIndexFile(str(path), _read_header(path), is_full)
    beside = path.with_suffix(".tmp")
    slots = np.zeros(geometry.slots, np.int32)
    state = _initial_file_state(task)
    descriptor = create_file(beside)
    try:
        os.truncate(descriptor, geometry.file_size)
        for keys, first, end in _read_keys(task, task.first, task.end):
            _write_entries(descriptor, geometry, keys, range(first, end), slots, state)
        header = Header(
            int(state[index_entries.BEGIN_TIME]),
            int(state[index_entries.END_TIME]),
            int(state[index_entries.BEGIN_OFFSET]),
            int(state[index_entries.END_OFFSET]),
            int(state[index_entries.USED_SLOTS]),
            int(state[index_entries.NUMBER]),
        )
        # Slots and header last; until the rename below, nobody reads the file.
        _write_at(descriptor, slots.astype(">i4").view(np.uint8), geometry.slot_position(0))
        _write_at(descriptor, np.frombuffer(serialize_header(header), np.uint8), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    move_synced(beside, path)
    return BuiltIndexFile(str(path), header, is_full)


def _initial_file_state(task: IndexTask) -> Array:
    """Return the state of a new IndexFile, whose header begins with the previous file's last offset and time."""
    state = np.zeros(index_entries.STATE_SIZE, np.int64)
    state[index_entries.NUMBER] = 1
    for keys, first, _ in _read_keys(task, task.first - 1, task.first) if task.first else ():
        record = int(np.searchsorted(keys.ends, first, side="right"))
        state[index_entries.BEGIN_TIME] = state[index_entries.END_TIME] = keys.times[record]
        state[index_entries.BEGIN_OFFSET] = state[index_entries.END_OFFSET] = keys.offsets[record]
    return state


def _read_keys(task: IndexTask, first: int, end: int) -> Iterator[tuple[RecordKeys, int, int]]:
    """Yield the blocks of keys in a range of key numbers, each with the first and end of the keys to use."""
    ends = task.part_ends
    for path, begin, stop in zip(task.parts, ends, ends[1:], strict=False):
        if begin < end and stop > first and begin < stop:
            yield from PartReader(Path(path)).read_keys(max(0, first - begin), min(stop, end) - begin)


def _write_entries(
    descriptor: int, geometry: Geometry, keys: RecordKeys, key_range: range, slots: Array, state: Array
) -> None:
    out = np.empty(ENTRY.size * min(len(key_range), _AT_ONCE), np.uint8)
    for first in range(key_range.start, key_range.stop, _AT_ONCE):
        end = min(key_range.stop, first + _AT_ONCE)
        position = geometry.entry_position(int(state[index_entries.NUMBER]))
        index_entries.write_key_entries(keys.offsets, keys.times, keys.ends, keys.hashes, first, end, slots, state, out)
        _write_at(descriptor, out[: ENTRY.size * (end - first)], position)


def _write_at(descriptor: int, data: Array, position: int) -> None:
    view, written = data.data, 0
    while written < len(view):
        written += os.pwrite(descriptor, view[written:], position + written)


def rename_built_files(built_indexes: Sequence[BuiltIndexFile], output_folder: Path) -> list[Path]:
    """Rename new IndexFiles to their final names, in log order, and return their paths.

    Args:
        built_indexes: all files, in log order.
        output_folder: the folder that receives `index`.
    """
    names: list[str] = []
    for each in built_indexes:
        name = index_file_name(each.header.begin_timestamp)
        # Two files may begin in the same millisecond, and the order of names is the order of files.
        if names and name <= names[-1]:
            name = f"{int(names[-1]) + 1:0{_NAME_LENGTH}d}"
        names.append(name)
    for each, name in zip(built_indexes, names, strict=True):
        move_synced(Path(each.path), output_folder / INDEX / name, trusted_root=output_folder)
    return [output_folder / INDEX / name for name in names]


def index_file_name(begin_ms: int) -> str:
    """Return an IndexFile's name, `yyyyMMddHHmmssSSS`, from the store time of its first entry."""
    time = _EPOCH + _WESTERNMOST + datetime.timedelta(milliseconds=min(max(_DAY_MS, begin_ms), _LAST_MS))
    return f"{time:%Y%m%d%H%M%S}{time.microsecond // 1000:03d}"


def _read_header(path: Path) -> Header:
    with os.fdopen(open_file(path), "rb") as file:
        return parse_header(file.read(HEADER.size))
