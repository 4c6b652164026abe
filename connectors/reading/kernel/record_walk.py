"""Loop that walks from record to record through a window.

`walk_records` walks until the window, the range or its room for results ends, and stores in `state` where to continue.
For each valid record it writes the positions of the record's parts in the window (rows of `parts`). For each bad range
it writes its physical offsets and the fault's code. The layout defines which records are valid, see `layouts`.
"""

from __future__ import annotations

from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.layouts import (
    classify_span,
    ends_bad_range,
    next_possible_start,
    read_records,
    start_mark_size,
)
from commitlake.connectors.reading.kernel.memory_access import has_nonzero_byte
from commitlake.schemas.layouts.rocketmq.scan import Fault

# Rows of `parts`.
START, BODY, BODY_LENGTH, TOPIC, TOPIC_LENGTH, PROPERTIES, PROPERTIES_LENGTH = range(7)
PART_COUNT = 7  # formats may have more

# Places in `state`.
POSITION = 0  # physical offset at which to continue
BAD_START = 1  # start of the current bad range, -1 for none
BAD_CODE = 2
BAD_ALL_ZEROS = 3
RECORDS = 4  # columns of `parts` that are filled
FAULTS = 5  # rows of `faults` that are filled
STOP = 6
UNWRITTEN_START = 7  # physical offset of the first zero, if STOP is STOP_UNWRITTEN
BLANK_AT = 8  # first BLANK in the current bad range, -1 for none
STATE_SIZE = 9

STOP_WINDOW, STOP_ROOM, STOP_LIMIT, STOP_BLANK, STOP_UNWRITTEN = range(5)

RECORD, BLANK, UNWRITTEN, MORE, FRAME = range(5)
"""Findings of `classify_span`; other values are codes of faults."""
FAULT_BY_CODE = {10 + number: fault for number, fault in enumerate(Fault)}
CODE_BY_FAULT = {fault: code for code, fault in FAULT_BY_CODE.items()}
_BODY_CRC, _HOLE = CODE_BY_FAULT[Fault.BODY_CRC], CODE_BY_FAULT[Fault.HOLE]


@compiled
def _range_has_nonzero_bytes(window, begin, end):
    while end - begin >= 64:
        if has_nonzero_byte(window, begin):
            return True
        begin += 64
    for at in range(begin, end):  # noqa: SIM110 (numba compiles a loop, not a generator)
        if window[at] != 0:
            return True
    return False


@compiled
def _find_bad_range_end(
    layout,
    window,
    window_length,
    window_offset,
    range_end,
    segment_end,
    file_end,
    max_record_bytes,
    state,
    record_parts,
    faults,
):
    """Search for the end of a bad range; return False if the window ends first."""
    # Zeros contain no landmark, so as long as there are only zeros, nothing is searched in them.
    if state[BAD_ALL_ZEROS] and _range_has_nonzero_bytes(window, state[POSITION] - window_offset, window_length):
        state[BAD_ALL_ZEROS] = 0
    end = -1
    while end < 0:
        candidate = (
            -1
            if state[BAD_ALL_ZEROS]
            else next_possible_start(layout, window, state[POSITION] - window_offset, window_length, window_offset)
        )
        if candidate < 0 or window_offset + candidate >= range_end:
            if window_offset + window_length >= range_end:
                end = range_end
                # No record lies between the BLANK and the end of the data, so it was a real one, and the log continues
                # in the next segment.
                if state[BLANK_AT] >= 0 and range_end >= min(segment_end, file_end):
                    end = state[BLANK_AT]
                    state[STOP] = STOP_BLANK
                break
            # A landmark may be cut by the window's end. The next window begins where such a one could begin.
            state[POSITION] = max(state[POSITION], window_offset + window_length - start_mark_size(layout) + 1)
            return False
        state[POSITION] = window_offset + candidate
        kind, _ = classify_span(
            layout,
            window,
            window_length,
            candidate,
            window_offset + candidate,
            segment_end,
            file_end,
            max_record_bytes,
            # The CRC is always verified here, because after damage only an intact body shows that the position is
            # right.
            True,
            record_parts,
            state[RECORDS],
        )
        if kind == MORE:
            return False
        if ends_bad_range(layout, kind):
            end = window_offset + candidate
        else:
            if kind == BLANK and state[BLANK_AT] < 0:  # it may be in a body, so it only counts if no record follows
                state[BLANK_AT] = window_offset + candidate
            # The size of a wrong record is not used to skip ahead: the true record may begin inside it.
            state[POSITION] += 1
    start = state[BAD_START]
    state[BAD_START] = -1
    state[POSITION] = segment_end if state[STOP] == STOP_BLANK else end
    # Zeros up to the limit are not damage: the log is not written from here on. If anything follows them, they are a
    # hole.
    if state[BAD_CODE] == UNWRITTEN and state[BAD_ALL_ZEROS]:
        state[UNWRITTEN_START] = start
        state[STOP] = STOP_UNWRITTEN
        return True
    row = state[FAULTS]
    faults[row, 0] = start
    faults[row, 1] = end
    faults[row, 2] = _HOLE if state[BAD_CODE] == UNWRITTEN else state[BAD_CODE]
    state[FAULTS] = row + 1
    return True


@compiled
def discard_findings_after(position, state, faults):
    """Discard what was found from a position on, because there is no room for it; the next call starts there again."""
    state[POSITION] = position
    while state[FAULTS] > 0 and faults[state[FAULTS] - 1, 0] >= position:
        state[FAULTS] -= 1
    state[BAD_START] = -1
    state[STOP] = STOP_ROOM


@compiled
def walk_records(
    layout,
    window,
    window_length,
    window_offset,
    range_end,
    segment_end,
    file_end,
    max_record_bytes,
    verifies_crc,
    state,
    record_parts,
    faults,
):
    """Locate records and bad ranges, beginning at `state[POSITION]`; the reason for stopping is in `state[STOP]`.

    Args:
        layout: see `layouts`.
        window: uint8 array; its first `window_length` bytes are those of the segment from `window_offset` on.
        window_length: bytes of the window that count.
        window_offset: physical offset of the window's first byte.
        range_end: physical offset at which the range ends; a record that begins before it belongs to it.
        segment_end: physical offset after the segment, which a BLANK must reach.
        file_end: physical offset after the file's last byte.
        max_record_bytes: larger sizes are faults.
        verifies_crc: compare bodies with their CRC; if false, only records after a bad range are checked so.
        state: int64[STATE_SIZE], see the constants; the caller empties RECORDS and FAULTS.
        record_parts: int64[PART_COUNT, room]; its last column is scratch.
        faults: int64[room, 3]: first byte, end, code.
    """
    # One column is not given out: `classify_span` also fills it for a record that is only examined, as at the end of a
    # bad range.
    room = record_parts.shape[1] - 1
    state[STOP] = -1
    while state[STOP] < 0:
        if state[BAD_START] < 0 and state[FAULTS] < faults.shape[0]:
            taken, rows = read_records(
                layout, window, window_length, window_offset, range_end, max_record_bytes, verifies_crc,
                state[POSITION] - window_offset, record_parts,
                state[RECORDS], room,
            )  # fmt: skip
            state[POSITION] = window_offset + taken
            state[RECORDS] = rows
        position = state[POSITION]
        if state[RECORDS] >= room or state[FAULTS] >= faults.shape[0]:
            state[STOP] = STOP_ROOM
        elif state[BAD_START] >= 0:
            if not _find_bad_range_end(
                layout,
                window,
                window_length,
                window_offset,
                range_end,
                segment_end,
                file_end,
                max_record_bytes,
                state,
                record_parts,
                faults,
            ):
                state[STOP] = STOP_WINDOW
        elif position >= range_end:
            state[STOP] = STOP_LIMIT
        else:
            kind, size = classify_span(
                layout, window, window_length, position - window_offset, position, segment_end, file_end,
                max_record_bytes, verifies_crc, record_parts,
                state[RECORDS],
            )  # fmt: skip
            if kind == RECORD:
                state[RECORDS] += 1
                state[POSITION] = position + size
            elif kind == FRAME:
                state[POSITION] = position + size
            elif kind == MORE:
                state[STOP] = STOP_WINDOW
            elif kind == BLANK:
                state[POSITION] = position + size
                state[STOP] = STOP_BLANK
            # The lengths agree, so the bad range is exactly this record, and the walk continues after it without a
            # search.
            elif kind == _BODY_CRC:
                row = state[FAULTS]
                faults[row, 0] = position
                faults[row, 1] = position + size
                faults[row, 2] = _BODY_CRC
                state[FAULTS] = row + 1
                state[POSITION] = position + size
            else:
                state[BAD_START] = position
                state[BAD_CODE] = kind
                state[BAD_ALL_ZEROS] = kind == UNWRITTEN
                state[BLANK_AT] = -1
                state[POSITION] = position + 1
