"""Iteration over a range of a segment with the compiled kernel, and positions at which the range may be divided.

`walk_records` opens a window, lets the kernel find the records in it, and continues where the kernel stopped. If a
record is larger than the window, the window grows, up to the largest record allowed. This limit bounds the memory,
whatever sizes the log claims.

A range may be divided only where a record begins. Such a split point, or cut, is found from the bytes around it, so
that planning reads some MiB for each split instead of the whole log. The search begins at a multiple of the partition
size. The cut is the first valid record that no apparent record spans; all apparent records that begin in the
`LOOK_BACK_BYTES` before it are examined (`kernel.find_border`). `LOOK_BACK_BYTES` is twice the largest body that
RocketMQ accepts by default. A larger record could have valid records in its body, and a cut could then be placed inside
it. The task that reads the range before such a cut finds that its last record extends beyond the cut, and fails
(`batches.read_split`). If no cut is near, because of damage or of such bodies, and for small partitions, the range is
scanned record by record from the last cut on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.log_format.kernel import BadRange, WalkArguments
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.errors import StoreError, no_progress_error
from commitlake.connectors.reading.files.segment_files import LocalFile, Window
from commitlake.connectors.reading.files.segment_windows import OpenWindow, Windows
from commitlake.connectors.reading.kernel import record_walk as kernel
from commitlake.connectors.reading.kernel.record_starts import NONE_AT_ALL
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.scan import Fault

_FAULT_ROOM = 1024
_PLACES = 16_384


@dataclass(frozen=True, slots=True)
class WalkStep:
    """Records and bad ranges that were located in one call of the compiled loop, in a window of a segment.

    Attributes:
        window: the bytes; valid until the next step.
        origin: physical offset of the window's first byte.
        parts: int64[parts, records], see `kernel.record_walk`; valid until the next step.
        bad: bad ranges that end in this window.
    """

    window: Window
    origin: int
    parts: Array
    bad: list[BadRange]


@dataclass(slots=True)
class WalkEnd:
    """Reason and position at which the reading of a segment ended; set when it ends.

    Attributes:
        stop: `STOP_LIMIT`, `STOP_BLANK` or `STOP_UNWRITTEN`.
        position: physical offset after the last byte that was read; with STOP_UNWRITTEN, of the first zero.
    """

    stop: int = kernel.STOP_LIMIT
    position: int = 0


Hop = Callable[[WalkArguments, Array, Array], Array]
"""Function that continues from `state[POSITION]`; it returns the positions of the records it found."""


def make_record_locator(log_format: Format) -> Hop:
    """Return a function that locates the records in a window without decoding them."""
    compiled = log_format.kernel
    parts = np.empty((compiled.part_count, _PLACES + 1), np.int64)

    def locate_records(arguments: WalkArguments, state: Array, faults: Array) -> Array:
        compiled.hop(*arguments, state, parts, faults)
        found: Array = parts[:, : state[kernel.RECORDS]]
        return found

    return locate_records


def walk_records(
    file: SegmentFile,
    split: Split,
    window_bytes: int,
    max_record_bytes: int,
    walk_end: WalkEnd,
    *,
    verifies_crc: bool = True,
    locate_records: Hop | None = None,
) -> Iterator[WalkStep]:
    """Yield the records and the bad ranges in a segment's range, in order of their offsets.

    If the file was truncated since the plan, the walk ends with a bad range up to the range's end.

    Args:
        file: the open segment.
        split: the range to walk.
        window_bytes: bytes to read at a time if the file cannot be mapped.
        max_record_bytes: larger sizes are faults.
        walk_end: receives the position at which the walk ended.
        verifies_crc: compare bodies with their CRC; if false, only records after a bad range are checked so.
        locate_records: finds the records; by default, that of `make_record_locator`.

    Raises:
        StoreError: if the file was truncated while the caller processed a step, or deleted in an object store.
        CommitLogError: if the hop does not progress, or requests the same window again.
    """
    locate_records = locate_records or make_record_locator(split.format)
    state = np.zeros(kernel.STATE_SIZE, np.int64)
    state[kernel.POSITION] = split.start
    state[kernel.BAD_START] = -1
    faults = np.empty((_FAULT_ROOM, 3), np.int64)
    windows = Windows(file, split.base_offset, window_bytes, split.size)
    file_end = split.file_end
    limit = reach = min(split.end, file_end)
    state[kernel.STOP] = kernel.STOP_WINDOW
    progress = WalkProgress(split.path, split.base_offset)
    while state[kernel.STOP] == kernel.STOP_WINDOW:
        # Only within a bad range, which a hole begins as any other zeros do: the kernel has to see their start.
        if state[kernel.BAD_START] >= 0:
            _skip_hole(file, split, limit, state)
        origin = int(state[kernel.POSITION])
        progress.check_window(origin, reach, *windows.max_sizes)
        with _open_window(windows, split, origin, reach, limit) as opened:
            length = opened.length
            # The file is shorter than planned. Its present end is the truth; the rest becomes a bad range below.
            if opened.is_end_of_file:
                file_end = reach = origin + length
                limit = min(limit, file_end)
            arguments = WalkArguments(
                opened.window, length, origin, limit, split.segment_end, file_end, max_record_bytes, verifies_crc
            )
            state[kernel.STOP] = kernel.STOP_ROOM
            while state[kernel.STOP] == kernel.STOP_ROOM:
                # To repeat this step, if the file turns out to be truncated while the kernel reads it.
                before = state.copy()
                state[kernel.RECORDS] = state[kernel.FAULTS] = 0
                parts = locate_records(arguments, state, faults)
                progress.check_advance(before, state)
                if opened.was_truncated:  # the kernel saw zeros, so read the window again without a mapping
                    state[:] = before
                    state[kernel.STOP] = kernel.STOP_WINDOW
                    windows.disable_mapping()
                    break
                if parts.shape[1] or state[kernel.FAULTS]:
                    yield WalkStep(opened.window, origin, parts, _to_bad_ranges(faults[: state[kernel.FAULTS]]))
                    # The caller has already used this step's bytes, some of which may have been zeros of the guard, so
                    # it cannot be repeated.
                    if opened.was_truncated:
                        raise StoreError(
                            f"{split.path} was truncated while it was read: read the store again",
                            exit_code=ExitCode.FAILED,
                        )
            else:
                # The window holds no whole record. First extend it past the range, in which a record only has to begin,
                # then make windows larger.
                if state[kernel.STOP] == kernel.STOP_WINDOW and int(state[kernel.POSITION]) == origin:
                    if origin + length == reach:
                        reach = file_end  # a record that extends beyond the range
                    else:
                        windows.enlarge_windows()
    walk_end.stop = int(state[kernel.STOP])
    walk_end.position = int(
        state[kernel.UNWRITTEN_START if walk_end.stop == kernel.STOP_UNWRITTEN else kernel.POSITION]
    )
    if walk_end.stop == kernel.STOP_LIMIT and limit < split.end:
        start = max(limit, split.start)
        yield WalkStep(
            np.empty(0, np.uint8),
            start,
            np.empty((split.format.kernel.part_count, 0), np.int64),
            [BadRange(start, split.end, Fault.CUT)],
        )


def _open_window(windows: Windows, split: Split, window_offset: int, window_end: int, range_end: int) -> OpenWindow:
    """Open a window; raise `SegmentCutError` if the segment was deleted after a part of it was read."""
    try:
        return windows.open(window_offset, window_end, range_end)
    except FileNotFoundError:
        # Nothing was read yet, so the caller can report the whole range as missing.
        if window_offset == split.start:
            raise
        raise StoreError(
            f"{split.path} was deleted while it was read: read the store again", exit_code=ExitCode.FAILED
        ) from None


def _skip_hole(file: SegmentFile, split: Split, range_end: int, state: Array) -> None:
    """Move the read past a hole of a sparse file, because reading the hole would fill the memory with zeros."""
    if isinstance(file, LocalFile):
        position = int(state[kernel.POSITION])
        data = file.next_data(position - split.base_offset)
        following = range_end if data is None else min(range_end, split.base_offset + data)
        # A landmark may begin in the zeros before the data.
        state[kernel.POSITION] = max(position, following - split.format.record_rules.head_bytes)


def _to_bad_ranges(faults: Array) -> list[BadRange]:
    return [BadRange(int(start), int(stop), kernel.FAULT_BY_CODE[int(code)]) for start, stop, code in faults]


class WalkProgress:
    """Guard against an endless loop: checks that each step of reading a segment advances."""

    def __init__(self, path: str, base_offset: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self._window: tuple[int, ...] = ()

    def check_window(self, *window: int) -> None:
        """Check that a new window differs from the previous one, as a repeated window would mean an endless loop.

        Args:
            window: physical offset of its first byte, and the values that determine its length.

        Raises:
            CommitLogError: if it is the same.
        """
        if window == self._window:
            raise no_progress_error(
                self._path, self._base_offset, window[0], "a larger window", "the same window again"
            )
        self._window = window

    def check_advance(self, previous_state: Array, state: Array) -> None:
        """Check that the kernel has advanced, when it has stopped because its output arrays are full.

        Args:
            previous_state: the hop's state before the call.
            state: the hop's state after the call.

        Raises:
            CommitLogError: if it found nothing and is at the same position.
        """
        if (
            state[kernel.STOP] == kernel.STOP_ROOM
            and state[kernel.RECORDS] + state[kernel.FAULTS] == 0
            and state[kernel.POSITION] <= previous_state[kernel.POSITION]
        ):
            at = int(state[kernel.POSITION])
            raise no_progress_error(self._path, self._base_offset, at, "room for one record", "none in an empty batch")


LOOK_BACK_BYTES = 8 << 20
_WORTH_A_LOOK = 2  # in look-backs; for shorter distances, hopping reads less
_WINDOW_BYTES = 1 << 20


def find_split_points(
    file: SegmentFile, split: Split, max_partition_bytes: int, max_record_bytes: int, end_offset: int
) -> Iterator[int]:
    """Yield the first record start after each multiple of the partition size, up to one at or past `end_offset`."""
    cut: int | None = split.start
    while cut is not None and cut < end_offset:
        following = _next_multiple_of_size(cut, max_partition_bytes)
        # A cut at the range's end would make no split.
        if following >= split.end:
            return
        cut = find_split_point(file, replace(split, start=cut), following, max_record_bytes)
        if cut is not None:
            yield cut


def find_last_split_point(
    file: SegmentFile, split: Split, max_partition_bytes: int, max_record_bytes: int
) -> int | None:
    """Return the last record start found near a multiple of the partition size without a scan; None if there is none.

    The last multiple of the partition size is tried first, then the others by bisection, because a segment that is
    being written is zeros from some position on. If damage hides cuts, an earlier one may be found.
    """
    first = max(_next_multiple_of_size(split.start, max_partition_bytes), split.start + _WORTH_A_LOOK * LOOK_BACK_BYTES)
    last = (split.end - 1) // max_partition_bytes * max_partition_bytes
    places = range(-(-first // max_partition_bytes) * max_partition_bytes, last + 1, max_partition_bytes)
    low, high = 0, len(places)
    middle = high - 1
    found = None
    while low < high:
        cut = _find_nearby_split_point(file, split, places[middle], max_record_bytes)
        if cut is None:
            high = middle
        else:
            found, low = cut, middle + 1
        middle = (low + high) // 2
    return found


def find_split_point(file: SegmentFile, split: Split, min_offset: int, max_record_bytes: int) -> int | None:
    """Return the first record start at or after a physical offset in a range, or None."""
    cut = None
    if min_offset - split.start >= _WORTH_A_LOOK * LOOK_BACK_BYTES:
        cut = _find_nearby_split_point(file, split, min_offset, max_record_bytes)
    return _find_split_point_by_walk(file, split, min_offset, max_record_bytes) if cut is None else cut


def _next_multiple_of_size(offset: int, size: int) -> int:
    return (offset // size + 1) * size


def _find_nearby_split_point(file: SegmentFile, split: Split, min_offset: int, max_record_bytes: int) -> int | None:
    """Return the first record start at or after `min_offset` that no other record spans, if one is near."""
    begin = min_offset - LOOK_BACK_BYTES
    end = min(split.end, min_offset + LOOK_BACK_BYTES)
    # A hole has no record, and reading it would only fill memory with zeros.
    if isinstance(file, LocalFile) and _is_hole(file, begin - split.base_offset, end - split.base_offset):
        return None
    windows = Windows(file, split.base_offset, LOOK_BACK_BYTES + _WINDOW_BYTES, end - begin)
    kernel = split.format.kernel
    parts = np.empty((kernel.part_count, 1), np.int64)
    while True:
        with windows.open(begin, end) as opened:
            found = kernel.find_border(
                opened.window, opened.length, begin, min_offset, split.segment_end, split.file_end,
                max_record_bytes, parts,
            )  # fmt: skip
            is_all = opened.is_end_of_file or opened.length >= end - begin
            # The bytes were the guard's zeros. Read again without a mapping, so that the true end is seen.
            if opened.was_truncated:
                windows.disable_mapping()
                continue
        if found >= 0:
            return int(found)
        if is_all or found == NONE_AT_ALL:
            return None
        windows.enlarge_windows()


def _is_hole(file: LocalFile, begin: int, end: int) -> bool:
    data = file.next_data(begin)
    return data is None or data >= end


def _find_split_point_by_walk(file: SegmentFile, split: Split, min_offset: int, max_record_bytes: int) -> int | None:
    """Return the first record start at or after `min_offset`, found by reading records from a known start on."""
    # Without CRCs: only positions are wanted, and the task that reads the range verifies them.
    for step in walk_records(file, split, _WINDOW_BYTES, max_record_bytes, WalkEnd(), verifies_crc=False):
        starts = step.origin + step.parts[kernel.START]
        if len(starts) and starts[-1] >= min_offset:
            # The starts are in order, and the first at or after the wanted position ends the search.
            return int(starts[np.searchsorted(starts, min_offset)])
    return None
