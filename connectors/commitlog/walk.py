"""A range of a segment, window by window, through the compiled kernel.

`walk` reads as much as a window holds, lets `hop` find the records in it, and goes on where the kernel stopped. A
record that is larger than the window makes the window grow, up to the largest record allowed; memory is bounded by
that, whatever sizes the log claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from connectors.commitlog.arrow import Array
from connectors.commitlog.files import SegmentFile, Window
from connectors.commitlog.kernel import hop
from connectors.commitlog.splits import Split
from schemas.layouts.commitlog import BLANK, MIN_RECORD_SIZE
from schemas.layouts.scan import Fault

_FAULT_ROOM = 1024


@dataclass(frozen=True, slots=True)
class BadRange:
    """A stretch that holds no intact record, in physical offsets."""

    start: int
    end: int
    fault: Fault


@dataclass(frozen=True, slots=True)
class Step:
    """What one window gave.

    Attributes:
        window: the bytes; valid until the next step.
        origin: physical offset of the window's first byte.
        parts: int64[PART_COUNT, records], see `kernel.hop`; valid until the next step.
        bad: bad ranges that end in this window.
    """

    window: Window
    origin: int
    parts: Array
    bad: list[BadRange]


@dataclass(slots=True)
class End:
    """Where a walk ended; filled in when it has.

    Attributes:
        stop: one of `hop.STOP_LIMIT`, `STOP_BLANK`, `STOP_UNWRITTEN`.
        position: physical offset behind the last byte that was taken; with STOP_UNWRITTEN, of the first zero.
        bytes_read: what was read from the file.
    """

    stop: int = hop.STOP_LIMIT
    position: int = 0
    bytes_read: int = 0


def walk(
    file: SegmentFile, split: Split, window_bytes: int, max_record_bytes: int, end: End, *, verify: bool = True
) -> Iterator[Step]:
    """The records and bad ranges of a range of a segment, in order.

    A file that has been cut since it was planned ends the walk with a bad range, up to the range's end.

    Args:
        file: the open segment.
        split: which range of it.
        window_bytes: how much to read at a time.
        max_record_bytes: larger sizes are faults.
        end: is told where the walk ended.
        verify: compare bodies with their CRC; without it only what follows a bad range is checked so.
    """
    state = np.zeros(hop.STATE_SIZE, np.int64)
    state[hop.POSITION] = split.start
    state[hop.BAD_START] = -1
    buffer = np.empty(max(BLANK.size, min(window_bytes, split.size)), np.uint8)
    parts = np.empty((hop.PART_COUNT, len(buffer) // MIN_RECORD_SIZE + 2), np.int64)
    faults = np.empty((_FAULT_ROOM, 3), np.int64)
    file_end = split.file_end
    limit = reach = min(split.end, file_end)
    state[hop.STOP] = hop.STOP_WINDOW
    while state[hop.STOP] == hop.STOP_WINDOW:
        origin = int(state[hop.POSITION])
        wanted = max(0, min(len(buffer), reach - origin))
        length = file.read_into(buffer[:wanted], origin - split.base_offset)
        end.bytes_read += length
        if length < wanted:
            file_end = reach = origin + length
            limit = min(limit, file_end)
        state[hop.STOP] = hop.STOP_ROOM
        while state[hop.STOP] == hop.STOP_ROOM:
            state[hop.RECORDS] = state[hop.FAULTS] = 0
            hop.hop(
                buffer, length, origin, limit, split.segment_end, file_end, max_record_bytes, verify, state, parts,
                faults
            )  # fmt: skip
            if state[hop.RECORDS] or state[hop.FAULTS]:
                yield Step(buffer, origin, parts[:, : state[hop.RECORDS]], _bad_ranges(faults[: state[hop.FAULTS]]))
        if state[hop.STOP] == hop.STOP_WINDOW and int(state[hop.POSITION]) == origin:
            if origin + length == reach:
                reach = file_end  # a record that goes on behind the range
            else:
                buffer = np.empty(2 * len(buffer), np.uint8)
    end.stop = int(state[hop.STOP])
    end.position = int(state[hop.UNWRITTEN_START if end.stop == hop.STOP_UNWRITTEN else hop.POSITION])
    if end.stop == hop.STOP_LIMIT and limit < split.end:
        start = max(limit, split.start)
        yield Step(buffer, start, parts[:, :0], [BadRange(start, split.end, Fault.CUT)])


def _bad_ranges(faults: Array) -> list[BadRange]:
    return [BadRange(int(start), int(stop), hop.FAULT_BY_CODE[int(code)]) for start, stop, code in faults]
