"""Whether a record begins at a place for sure: known from the bytes before it, without walking there.

What proves itself may lie in a body, and records in bodies may follow one another for as long as somebody sends such
bodies. But a place inside of a record is spanned by that record, which begins before it and ends behind it. So a
record that proves itself, and that is spanned by nothing that looks like a record, is one of the log's.
"""

from __future__ import annotations

import numpy as np

from connectors.commitlog.kernel import hop as h
from connectors.commitlog.kernel.compiled import compiled
from connectors.commitlog.kernel.memory import load_be_i32, load_be_i64
from schemas.layouts.commitlog import HEAD

NONE_HERE = -1
"""There is no such record in the window; a larger one may show it."""
NONE_AT_ALL = -2
"""Something says that the segment's data ends before it."""

_AT_SIZE = HEAD.offset_of("total_size")
_AT_PHYSICAL_OFFSET = HEAD.offset_of("physical_offset")
_HEAD_SIZE = HEAD.size


@compiled
def find_border(window, length, origin, at, segment_end, file_end, max_record, parts):
    """Where the first record at or behind `at` begins that nothing spans which begins in the window.

    Args:
        window: uint8 array; its first `length` bytes are those of the segment from `origin` on.
        length: bytes of the window that count.
        origin: physical offset of the window's first byte.
        at: physical offset from which on a record is wanted.
        segment_end: physical offset behind the segment, which a BLANK must reach.
        file_end: physical offset behind the file's last byte.
        max_record: larger sizes are faults.
        parts: int64[PART_COUNT, 1], scratch.

    Returns:
        Its physical offset, NONE_HERE or NONE_AT_ALL.
    """
    reach = np.int64(0)
    position = h.next_landmark(window, 0, length)
    while position >= 0:
        offset = origin + position
        kind, size = h.examine(
            window, length, position, offset, segment_end, file_end, max_record, False, parts, np.int64(0)
        )
        if kind == h.BLANK:
            return NONE_AT_ALL
        if kind == h.MORE:
            if length - position < _HEAD_SIZE:
                return NONE_HERE
            if load_be_i64(window, position + _AT_PHYSICAL_OFFSET) == offset:
                if reach <= offset and offset >= at:
                    return NONE_HERE
                reach = max(reach, offset + np.int64(load_be_i32(window, position + _AT_SIZE)))
        elif kind == h.RECORD:
            is_border = reach <= offset and offset >= at
            if is_border and h.agrees(window, position, parts[h.BODY, 0], parts[h.BODY_LENGTH, 0]):
                return offset
            reach = max(reach, offset + size)
        position = h.next_landmark(window, position + 1, length)
    return NONE_HERE
