"""Search for the start of a record near a position, with a proof from the bytes before it instead of a scan.

A body may contain valid records, even many in a row. But every position inside a record is spanned by that record,
which begins before it and ends after it. So a valid record that no apparent record spans is a record of the log.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.layouts import (
    body_matches_crc,
    classify_span,
    next_possible_start,
    read_record_head,
    record_head_size,
)

NONE_HERE = -1
"""There is no such record in the window; a larger window may contain it."""
NONE_AT_ALL = -2
"""There is evidence that the segment's data ends before the position."""


@compiled
def find_record_start(
    layout, window, window_length, window_offset, search_start, segment_end, file_end, max_record_bytes, record_parts
):
    """Return the first record start at or after `search_start` that is certainly not inside another record.

    Args:
        layout: see `layouts`.
        window: uint8 array; its first `window_length` bytes are those of the segment from `window_offset` on.
        window_length: bytes of the window that count.
        window_offset: physical offset of the window's first byte.
        search_start: physical offset at which the search for a record begins.
        segment_end: physical offset after the segment, which a BLANK must reach.
        file_end: physical offset after the file's last byte.
        max_record_bytes: larger sizes are faults.
        record_parts: int64[PART_COUNT, 1], scratch.

    Returns:
        The physical offset of the record, NONE_HERE or NONE_AT_ALL.
    """
    reach = np.int64(0)
    position = next_possible_start(layout, window, 0, window_length, window_offset)
    # A wrong landmark costs nothing but time: it can only extend `reach`, so that too few positions count as certain,
    # never too many.
    while position >= 0:
        offset = window_offset + position
        kind, size = classify_span(
            layout,
            window,
            window_length,
            position,
            offset,
            segment_end,
            file_end,
            max_record_bytes,
            False,
            record_parts,
            np.int64(0),
        )
        # Its size leads exactly to the segment's end, so no record follows it, unless it is part of a body.
        if kind == h.BLANK:
            return NONE_AT_ALL
        if kind == h.MORE:
            if window_length - position < record_head_size(layout):
                return NONE_HERE
            own_offset, own_size = read_record_head(layout, window, position)
            # Only a head with its own offset is taken for a record that is cut by the window.
            if own_offset == offset:
                if reach <= offset and offset >= search_start:
                    return NONE_HERE
                reach = max(reach, offset + own_size)
        elif kind == h.RECORD:
            is_border = reach <= offset and offset >= search_start
            # The CRC is computed for this one only. For a record that spans others, a wrong claim is harmless.
            if is_border and body_matches_crc(
                layout, window, position, record_parts[h.BODY, 0], record_parts[h.BODY_LENGTH, 0]
            ):
                return offset
            reach = max(reach, offset + size)
        position = next_possible_start(layout, window, position + 1, window_length, window_offset)
    return NONE_HERE
