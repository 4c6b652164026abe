"""Rules for journal records as in `schemas.layouts.jmq.scan`; offsets come from the declared layouts.

All eight bytes of a record's own offset are compared before anything else, because the two bytes of the magic occur
everywhere in a large file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from commitlake.connectors.reading.kernel.compile_options import compiled, inlined
from commitlake.connectors.reading.kernel.crc import crc32
from commitlake.connectors.reading.kernel.layouts import register_implementations
from commitlake.connectors.reading.kernel.memory_access import (
    load_be_i16,
    load_be_i32,
    load_be_i64,
    load_u8,
    lowest_set_bit_index,
    mask_equal_bytes,
)
from commitlake.connectors.reading.kernel.record_walk import (
    BLANK,
    BODY,
    BODY_LENGTH,
    CODE_BY_FAULT,
    MORE,
    PART_COUNT,
    PROPERTIES,
    PROPERTIES_LENGTH,
    RECORD,
    START,
    TOPIC,
    TOPIC_LENGTH,
    UNWRITTEN,
)
from commitlake.schemas.layouts.jmq import journal as layout
from commitlake.schemas.layouts.rocketmq.scan import Fault


class JournalLayout(NamedTuple):
    """Type of the first argument by which a kernel function selects its implementation for JMQ's journal."""

    number: int


JOURNAL = JournalLayout(1)

# More rows of `parts`.
APP, APP_LENGTH, BUSINESS_ID, BUSINESS_ID_LENGTH = range(PART_COUNT, PART_COUNT + 4)
JOURNAL_PART_COUNT = PART_COUNT + 4

_MAGIC, _SIZE, _PHYSICAL_OFFSET = (CODE_BY_FAULT[fault] for fault in (Fault.MAGIC, Fault.SIZE, Fault.PHYSICAL_OFFSET))
_PART_LENGTHS, _BODY_CRC, _CUT = (CODE_BY_FAULT[fault] for fault in (Fault.PART_LENGTHS, Fault.BODY_CRC, Fault.CUT))
_BLANK_SIZE = CODE_BY_FAULT[Fault.BLANK_SIZE]

_NOWHERE = np.int64(-1)
_MESSAGE, _FILLER = int(layout.Magic.MESSAGE), int(layout.Magic.FILLER)
_FIRST_OF_MESSAGE, _FIRST_OF_FILLER = np.uint8(_MESSAGE >> 8), np.uint8(_FILLER >> 8)
_MAGIC_SIZE = 2
_AT_MAGIC = layout.HEAD.offset_of("magic")
_AT_OFFSET = layout.HEAD.offset_of("journal_offset")
_AT_CRC = layout.HEAD.offset_of("body_crc")
_HEAD_SIZE, _BODY_START = layout.HEAD.size, layout.BODY_START
_FILLER_SIZE, _MIN_RECORD_SIZE = layout.FILLER.size, layout.MIN_RECORD_SIZE
_REACH = _AT_OFFSET + 8
_TOPIC_LENGTH_SIZE, _APP_LENGTH_SIZE = layout.TOPIC_LENGTH.size, layout.APP_LENGTH.size
_BUSINESS_ID_LENGTH_SIZE, _PROPERTIES_LENGTH_SIZE = layout.BUSINESS_ID_LENGTH.size, layout.PROPERTIES_LENGTH.size
assert (_TOPIC_LENGTH_SIZE, _APP_LENGTH_SIZE, _BUSINESS_ID_LENGTH_SIZE, _PROPERTIES_LENGTH_SIZE) == (1, 1, 1, 2)


@inlined
def _unsigned32(window, position):
    return np.int64(load_be_i32(window, position)) & 0xFFFFFFFF


@inlined
def unsigned16(window, position):
    """Return two bytes as a number, most significant first."""
    return np.int64(load_be_i16(window, position)) & 0xFFFF


@compiled
def classify_span(
    window, window_length, position, offset, segment_end, file_end, max_record_bytes, verifies_crc, record_parts, row
):
    """Return kind and size of the bytes at a position: record, FILLER, zeros or damage; locate a record's parts."""
    available = window_length - position
    left = file_end - offset
    if available < _FILLER_SIZE:
        if left > available:
            return MORE, 0
        # The last bytes of a file are too few for a filler, so the broker leaves zeros there; anything else is the rest
        # of a lost record.
        for at in range(position, window_length):
            if window[at] != 0:
                return _CUT, 0
        if available > 0 and offset + available == segment_end:
            return BLANK, available
        return UNWRITTEN, available
    size = _unsigned32(window, position)
    magic = unsigned16(window, position + _AT_MAGIC)
    if magic == _FILLER:
        if size == segment_end - offset:
            return BLANK, size
        return _BLANK_SIZE, 0
    if size == 0 and magic == 0:
        return UNWRITTEN, 0
    if magic != _MESSAGE:
        return _MAGIC, 0
    if size < _MIN_RECORD_SIZE or size > max_record_bytes:
        return _SIZE, 0
    if size > left:
        return _CUT, 0
    if size > available:
        return MORE, 0
    # The own offset is compared before any length is used: after the two bytes of magic, it is the first real evidence.
    if load_be_i64(window, position + _AT_OFFSET) != offset:
        return _PHYSICAL_OFFSET, 0
    located = _locate_record_parts(window, position, size)
    if located[0] < 0:
        return _PART_LENGTHS, 0
    # Last, because it reads the whole body. The size is returned nevertheless: the lengths agree, so the walk can
    # continue after the record.
    if verifies_crc and not body_matches_crc(window, position, located[0], located[1]):
        return _BODY_CRC, size
    _store_record_parts(record_parts, row, position, located)
    return RECORD, size


@inlined
def _locate_record_parts(window, position, size):
    """Locate a record's parts, and check their lengths; the first position is -1 if the lengths do not fit.

    Returns:
        Place and length of body, topic, application, business id and properties.
    """
    body = position + _BODY_START
    body_length = _unsigned32(window, body - 4)
    room = size - _MIN_RECORD_SIZE - body_length
    if room < 0:
        return _NOWHERE, body_length, _NOWHERE, room, room, room, room, room, room, room
    topic = body + body_length + _TOPIC_LENGTH_SIZE
    topic_length = np.int64(load_u8(window, topic - 1))
    room -= topic_length
    if room < 0 or topic_length == 0:
        return _NOWHERE, body_length, topic, topic_length, room, room, room, room, room, room
    app = topic + topic_length + _APP_LENGTH_SIZE
    app_length = np.int64(load_u8(window, app - 1))
    room -= app_length
    if room < 0:
        return _NOWHERE, body_length, topic, topic_length, app, app_length, room, room, room, room
    business_id = app + app_length + _BUSINESS_ID_LENGTH_SIZE
    business_id_length = np.int64(load_u8(window, business_id - 1))
    room -= business_id_length
    properties = business_id + business_id_length + _PROPERTIES_LENGTH_SIZE
    if room < 0 or room != unsigned16(window, properties - 2):
        return _NOWHERE, body_length, topic, topic_length, app, app_length, business_id, room, room, room
    return (
        body, body_length, topic, topic_length, app, app_length, business_id, business_id_length, properties, room,
    )  # fmt: skip


@inlined
def _store_record_parts(record_parts, row, position, located_parts):
    body, body_length, topic, topic_length, app, app_length, key, key_length, properties, properties_length = (
        located_parts
    )
    record_parts[START, row] = position
    record_parts[BODY, row] = body
    record_parts[BODY_LENGTH, row] = body_length
    record_parts[TOPIC, row] = topic
    record_parts[TOPIC_LENGTH, row] = topic_length
    record_parts[APP, row] = app
    record_parts[APP_LENGTH, row] = app_length
    record_parts[BUSINESS_ID, row] = key
    record_parts[BUSINESS_ID_LENGTH, row] = key_length
    record_parts[PROPERTIES, row] = properties
    record_parts[PROPERTIES_LENGTH, row] = properties_length


@inlined
def body_matches_crc(window, position, body, body_length):
    """Return whether a record's body matches its CRC."""
    return np.int64(crc32(window, body, body_length)) == load_be_i64(window, position + _AT_CRC)


@compiled
def read_records(
    window,
    window_length,
    window_offset,
    range_end,
    max_record_bytes,
    verifies_crc,
    position,
    record_parts,
    row,
    max_records,
):
    """Read consecutive intact records, up to the first position at which there is none.

    Returns:
        The start of the first record that was not read, and the number of filled columns of `record_parts`.
    """
    end = min(window_length - _MIN_RECORD_SIZE + 1, range_end - window_offset)
    while row < max_records and position < end:
        if unsigned16(window, position + _AT_MAGIC) != _MESSAGE:
            break
        size = _unsigned32(window, position)
        if size < _MIN_RECORD_SIZE or size > max_record_bytes or size > window_length - position:
            break
        if load_be_i64(window, position + _AT_OFFSET) != window_offset + position:
            break
        located = _locate_record_parts(window, position, size)
        if located[0] < 0 or (verifies_crc and not body_matches_crc(window, position, located[0], located[1])):
            break
        _store_record_parts(record_parts, row, position, located)
        row += 1
        position += size
    return position, row


@compiled
def next_possible_start(window, search_start, window_length, window_offset):
    """Return the next position with a filler's magic, or a message's magic and matching offset; -1 if there is none."""
    block = search_start + _AT_MAGIC
    end = window_length - _MAGIC_SIZE + 1
    while block < end:
        mask = mask_equal_bytes(window, block, _FIRST_OF_MESSAGE, _FIRST_OF_FILLER)
        while mask != 0:
            at = block + lowest_set_bit_index(mask)
            mask &= mask - np.uint64(1)
            # The mask covers 64 bytes, and the last block reaches into the padding after the window.
            if at < end:
                magic = unsigned16(window, at)
                position = at - _AT_MAGIC
                if magic == _FILLER:
                    return position
                # A message too close to the window's end is left for the next window, which begins `start_mark_size`
                # bytes earlier.
                if magic == _MESSAGE and position + _REACH <= window_length:  # noqa: SIM102 (the second is the dear one)
                    if load_be_i64(window, position + _AT_OFFSET) == window_offset + position:
                        return position
        block += 64
    return -1


@compiled
def start_mark_size():
    """Return how many bytes from a position on `next_possible_start` needs to recognize a record or filler there."""
    return _REACH


@compiled
def ends_bad_range(span_kind):
    """Return True for a record with valid offset and lengths, at which a bad range before it ends."""
    return span_kind == RECORD or span_kind == _BODY_CRC


@compiled
def read_record_head(window, position):
    """Return the journal offset and the size that a record states in its fixed-length fields."""
    return load_be_i64(window, position + _AT_OFFSET), _unsigned32(window, position)


@compiled
def record_head_size():
    """Return the size in bytes of the fixed-length fields at a record's start."""
    return _HEAD_SIZE


register_implementations(
    JournalLayout,
    classify_span,
    read_records,
    next_possible_start,
    start_mark_size,
    ends_bad_range,
    body_matches_crc,
    read_record_head,
    record_head_size,
)
