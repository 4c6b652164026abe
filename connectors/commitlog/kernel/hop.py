"""From record to record through a window, by the rules of `schemas.layouts.scan`.

`hop` walks until the window, the range or its room for results ends, and leaves in `state` where to go on. For each
record that proves itself it writes where the record's parts lie (rows of `parts`, positions in the window); for each
bad range, its physical offsets and the fault's code. Offsets come from the declared layouts.
"""

from __future__ import annotations

import numpy as np

from connectors.commitlog.kernel.compiled import compiled, inlined
from connectors.commitlog.kernel.crc import crc32
from connectors.commitlog.kernel.memory import (
    any_set,
    find_bytes,
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_u8,
    lowest_bit,
)
from schemas.layouts import commitlog as layout
from schemas.layouts.hosts import V4_SIZE, V6_SIZE
from schemas.layouts.scan import Fault
from schemas.layouts.sysflag import BORN_HOST_V6, STORE_HOST_V6

# Rows of `parts`.
START, STORE_HOST, BODY, BODY_LENGTH, TOPIC, TOPIC_LENGTH, PROPERTIES, PROPERTIES_LENGTH = range(8)
PART_COUNT = 8

# Places in `state`.
POSITION = 0  # physical offset to go on at
BAD_START = 1  # of the bad range under way, -1 for none
BAD_CODE = 2
BAD_ALL_ZEROS = 3
RECORDS = 4  # columns of `parts` that are filled
FAULTS = 5  # rows of `faults` that are filled
STOP = 6
UNWRITTEN_START = 7  # where the zeros begin, when STOP is STOP_UNWRITTEN
BLANK_AT = 8  # the first BLANK met in the bad range under way, -1 for none
STATE_SIZE = 9

STOP_WINDOW, STOP_ROOM, STOP_LIMIT, STOP_BLANK, STOP_UNWRITTEN = range(5)

RECORD, BLANK, UNWRITTEN, MORE = range(4)
"""What `examine` finds; or a fault, by its code."""
FAULT_BY_CODE = {10 + number: fault for number, fault in enumerate(Fault)}
_CODE = {fault: code for code, fault in FAULT_BY_CODE.items()}
_MAGIC, _SIZE, _PHYSICAL_OFFSET = _CODE[Fault.MAGIC], _CODE[Fault.SIZE], _CODE[Fault.PHYSICAL_OFFSET]
_PART_LENGTHS, _BODY_CRC, _CUT = _CODE[Fault.PART_LENGTHS], _CODE[Fault.BODY_CRC], _CODE[Fault.CUT]
_BLANK_SIZE, _HOLE = _CODE[Fault.BLANK_SIZE], _CODE[Fault.HOLE]

_NOWHERE = np.int64(-1)
_MAGIC_SIZE = 4
_V1, _V2, _BLANK_MAGIC = int(layout.Magic.V1), int(layout.Magic.V2), int(layout.Magic.BLANK)
_FIRST_OF_RECORD, _FIRST_OF_BLANK = np.uint8(_V1 >> 24 & 0xFF), np.uint8(_BLANK_MAGIC >> 24 & 0xFF)
_AT_MAGIC = layout.HEAD.offset_of("magic")
_AT_CRC = layout.HEAD.offset_of("body_crc")
_AT_PHYSICAL_OFFSET = layout.HEAD.offset_of("physical_offset")
_AT_SYS_FLAG = layout.HEAD.offset_of("sys_flag")
_HEAD_SIZE, _STORED_SIZE, _TAIL_SIZE = layout.HEAD.size, layout.STORED.size, layout.TAIL.size
_AT_BODY_LENGTH = layout.TAIL.offset_of("body_length")
_PROPERTIES_LENGTH_SIZE = layout.PROPERTIES_LENGTH.size
_BLANK_SIZE_BYTES = layout.BLANK.size
_MIN_RECORD_SIZE = layout.MIN_RECORD_SIZE


@compiled
def examine(window, length, position, offset, segment_end, file_end, max_record, verify, parts, row):
    """(what stands at a position, its size): `schemas.layouts.scan.examine`, and the parts of a record."""
    available = length - position
    left = file_end - offset
    if available < _BLANK_SIZE_BYTES:
        if left > available:
            return MORE, 0
        for at in range(position, length):
            if window[at] != 0:
                return _CUT, 0
        return UNWRITTEN, available
    size = np.int64(load_be_i32(window, position))
    magic = load_be_i32(window, position + _AT_MAGIC)
    if magic == _BLANK_MAGIC:
        if size == segment_end - offset:
            return BLANK, size
        return _BLANK_SIZE, 0
    if size == 0 and magic == 0:
        return UNWRITTEN, 0
    if magic != _V1 and magic != _V2:
        return _MAGIC, 0
    if size < _MIN_RECORD_SIZE or size > max_record:
        return _SIZE, 0
    if size > left:
        return _CUT, 0
    if size > available:
        return MORE, 0
    if load_be_i64(window, position + _AT_PHYSICAL_OFFSET) != offset:
        return _PHYSICAL_OFFSET, 0
    return _examine_parts(window, position, size, magic, verify, parts, row), size


@inlined
def _locate(window, position, size, magic):
    """Where a record's parts lie, each length checked against the record; the first is -1 where they do not fit.

    Returns:
        Places of store host and body, the body's length, place and length of the topic, and of the properties.
    """
    end = position + size
    sys_flag = load_be_i32(window, position + _AT_SYS_FLAG)
    store_host = position + _HEAD_SIZE + V4_SIZE + _STORED_SIZE
    body = store_host + V4_SIZE + _TAIL_SIZE
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        store_host += V6_SIZE - V4_SIZE if sys_flag & BORN_HOST_V6 else 0
        body = store_host + _TAIL_SIZE + (V6_SIZE if sys_flag & STORE_HOST_V6 else V4_SIZE)
    topic_length_size = 2 if magic == _V2 else 1
    room = end - body - topic_length_size - _PROPERTIES_LENGTH_SIZE
    body_length = np.int64(load_be_i32(window, body - _TAIL_SIZE + _AT_BODY_LENGTH))
    if body_length < 0 or body_length > room:
        return _NOWHERE, body, body_length, _NOWHERE, _NOWHERE, _NOWHERE, _NOWHERE
    topic = body + body_length + topic_length_size
    if magic == _V2:
        topic_length = np.int64(load_be_i16(window, topic - 2)) & 0xFFFF
    else:
        topic_length = np.int64(load_u8(window, topic - 1))
    properties = topic + topic_length + _PROPERTIES_LENGTH_SIZE
    properties_length = end - properties
    if properties_length < 0:
        return _NOWHERE, body, body_length, topic, topic_length, _NOWHERE, _NOWHERE
    if properties_length != np.int64(load_be_i16(window, properties - _PROPERTIES_LENGTH_SIZE)):
        return _NOWHERE, body, body_length, topic, topic_length, _NOWHERE, _NOWHERE
    return store_host, body, body_length, topic, topic_length, properties, properties_length


@inlined
def _note(parts, row, position, located):
    store_host, body, body_length, topic, topic_length, properties, properties_length = located
    parts[START, row] = position
    parts[STORE_HOST, row] = store_host
    parts[BODY, row] = body
    parts[BODY_LENGTH, row] = body_length
    parts[TOPIC, row] = topic
    parts[TOPIC_LENGTH, row] = topic_length
    parts[PROPERTIES, row] = properties
    parts[PROPERTIES_LENGTH, row] = properties_length


@inlined
def agrees(window, position, body, body_length):
    """Whether a record's body agrees with its CRC."""
    crc = np.int64(crc32(window, body, body_length)) & 0x7FFFFFFF
    return crc == np.int64(load_be_i32(window, position + _AT_CRC))


@compiled
def _examine_parts(window, position, size, magic, verify, parts, row):
    located = _locate(window, position, size, magic)
    if located[0] < 0:
        return _PART_LENGTHS
    if verify and not agrees(window, position, located[1], located[2]):
        return _BODY_CRC
    _note(parts, row, position, located)
    return RECORD


@compiled
def _take_records(window, length, origin, limit, max_record, verify, position, parts, row, room):
    """Take intact records one after the other, as `examine` would; where one is not, it is left to `examine`.

    Nearly all of a log goes through here, so nothing is called but the CRC, and nothing is kept in memory.

    Returns:
        Where the first record begins that was not taken, and how many columns of `parts` are filled.
    """
    end = min(length - _MIN_RECORD_SIZE + 1, limit - origin)
    while row < room and position < end:
        size = np.int64(load_be_i32(window, position))
        magic = load_be_i32(window, position + _AT_MAGIC)
        if magic != _V1 and magic != _V2:
            break
        if size < _MIN_RECORD_SIZE or size > max_record or size > length - position:
            break
        if load_be_i64(window, position + _AT_PHYSICAL_OFFSET) != origin + position:
            break
        located = _locate(window, position, size, magic)
        if located[0] < 0 or (verify and not agrees(window, position, located[1], located[2])):
            break
        _note(parts, row, position, located)
        row += 1
        position += size
    return position, row


@compiled
def _any_data(window, begin, end):
    while end - begin >= 64:
        if any_set(window, begin):
            return True
        begin += 64
    for at in range(begin, end):  # noqa: SIM110 (numba compiles a loop, not a generator)
        if window[at] != 0:
            return True
    return False


@compiled
def next_landmark(window, begin, length):
    """The next position whose magic is a known one, or -1."""
    end = length - _MAGIC_SIZE + 1
    block = begin + _AT_MAGIC
    while block < end:
        mask = find_bytes(window, block, _FIRST_OF_RECORD, _FIRST_OF_BLANK)
        while mask != 0:
            at = block + lowest_bit(mask)
            mask &= mask - np.uint64(1)
            if at < end:
                magic = load_be_i32(window, at)
                if magic == _V1 or magic == _V2 or magic == _BLANK_MAGIC:
                    return at - _AT_MAGIC
        block += 64
    return -1


@compiled
def _search(window, length, origin, limit, segment_end, file_end, max_record, state, parts, faults):
    """Go on to what ends the bad range; False where the window ends first."""
    if state[BAD_ALL_ZEROS] and _any_data(window, state[POSITION] - origin, length):
        state[BAD_ALL_ZEROS] = 0
    end = -1
    while end < 0:
        candidate = -1 if state[BAD_ALL_ZEROS] else next_landmark(window, state[POSITION] - origin, length)
        if candidate < 0 or origin + candidate >= limit:
            if origin + length >= limit:
                end = limit
                if state[BLANK_AT] >= 0 and limit >= min(segment_end, file_end):
                    end = state[BLANK_AT]
                    state[STOP] = STOP_BLANK
                break
            state[POSITION] = max(state[POSITION], origin + length - _AT_MAGIC - _MAGIC_SIZE + 1)
            return False
        state[POSITION] = origin + candidate
        kind, _ = examine(
            window,
            length,
            candidate,
            origin + candidate,
            segment_end,
            file_end,
            max_record,
            True,
            parts,
            state[RECORDS],
        )
        if kind == MORE:
            return False
        if kind == RECORD:
            end = origin + candidate
        else:
            if kind == BLANK and state[BLANK_AT] < 0:  # it may be in a body: only if no record follows
                state[BLANK_AT] = origin + candidate
            state[POSITION] += 1
    start = state[BAD_START]
    state[BAD_START] = -1
    state[POSITION] = segment_end if state[STOP] == STOP_BLANK else end
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
def hop(window, length, origin, limit, segment_end, file_end, max_record, verify, state, parts, faults):
    """Walk on from `state[POSITION]` until `state[STOP]`.

    Args:
        window: uint8 array; its first `length` bytes are those of the segment from `origin` on.
        length: bytes of the window that count.
        origin: physical offset of the window's first byte.
        limit: physical offset at which the range ends; a record that begins before it belongs to it.
        segment_end: physical offset behind the segment, which a BLANK must reach.
        file_end: physical offset behind the file's last byte.
        max_record: larger sizes are faults.
        verify: compare bodies with their CRC; without it only what follows a bad range is checked so.
        state: int64[STATE_SIZE], see the constants; the caller empties RECORDS and FAULTS.
        parts: int64[PART_COUNT, room]; its last column is scratch.
        faults: int64[room, 3]: first byte, end, code.
    """
    room = parts.shape[1] - 1
    state[STOP] = -1
    while state[STOP] < 0:
        if state[BAD_START] < 0 and state[FAULTS] < faults.shape[0]:
            taken, rows = _take_records(
                window, length, origin, limit, max_record, verify, state[POSITION] - origin, parts, state[RECORDS], room
            )
            state[POSITION] = origin + taken
            state[RECORDS] = rows
        position = state[POSITION]
        if state[RECORDS] >= room or state[FAULTS] >= faults.shape[0]:
            state[STOP] = STOP_ROOM
        elif state[BAD_START] >= 0:
            if not _search(window, length, origin, limit, segment_end, file_end, max_record, state, parts, faults):
                state[STOP] = STOP_WINDOW
        elif position >= limit:
            state[STOP] = STOP_LIMIT
        else:
            kind, size = examine(
                window, length, position - origin, position, segment_end, file_end, max_record, verify, parts,
                state[RECORDS],
            )  # fmt: skip
            if kind == RECORD:
                state[RECORDS] += 1
                state[POSITION] = position + size
            elif kind == MORE:
                state[STOP] = STOP_WINDOW
            elif kind == BLANK:
                state[POSITION] = position + size
                state[STOP] = STOP_BLANK
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
