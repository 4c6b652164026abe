"""Rules of `schemas.layouts.rocketmq.scan` for CommitLog records; offsets come from the declared layouts."""

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
    FRAME,
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
from commitlake.schemas.layouts.boltmq.dialect import BOLTMQ, ROCKETMQ, Magic
from commitlake.schemas.layouts.rocketmq import commitlog as layout
from commitlake.schemas.layouts.rocketmq import dledger
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6


class CommitLogLayout(NamedTuple):
    """Type of the first argument by which a kernel function selects its implementation for CommitLogs."""

    number: int


COMMITLOG = CommitLogLayout(0)

# One more row of `parts`.
STORE_HOST = PART_COUNT
COMMITLOG_PART_COUNT = PART_COUNT + 1

_FAULT = CODE_BY_FAULT
_MAGIC, _SIZE, _PHYSICAL_OFFSET = _FAULT[Fault.MAGIC], _FAULT[Fault.SIZE], _FAULT[Fault.PHYSICAL_OFFSET]
_PART_LENGTHS, _BODY_CRC, _CUT = _FAULT[Fault.PART_LENGTHS], _FAULT[Fault.BODY_CRC], _FAULT[Fault.CUT]
_BLANK_SIZE = _FAULT[Fault.BLANK_SIZE]

_NOWHERE = np.int64(-1)
_MAGIC_SIZE = 4
_V1, _V2, _BLANK_MAGIC = int(Magic.V1), int(Magic.V2), int(Magic.BLANK)
_BOLTMQ, _BOLTMQ_BLANK = int(Magic.BOLTMQ), int(Magic.BOLTMQ_BLANK)
_FIRST_OF_RECORD, _FIRST_OF_BLANK = np.uint8(_V1 >> 24 & 0xFF), np.uint8(_BLANK_MAGIC >> 24 & 0xFF)
assert (_BOLTMQ >> 24, _BOLTMQ_BLANK >> 24) == (_V1 >> 24, _BLANK_MAGIC >> 24)
_CRC_MASK, _BOLTMQ_CRC_MASK = np.int64(ROCKETMQ.crc_mask), np.int64(BOLTMQ.crc_mask)
_AT_MAGIC = layout.HEAD.offset_of("magic")
_AT_CRC = layout.HEAD.offset_of("body_crc")
_AT_PHYSICAL_OFFSET = layout.HEAD.offset_of("physical_offset")
_AT_SYS_FLAG = layout.HEAD.offset_of("sys_flag")
_HEAD_SIZE, _STORED_SIZE, _TAIL_SIZE = layout.HEAD.size, layout.STORED.size, layout.TAIL.size
_AT_BODY_LENGTH = layout.TAIL.offset_of("body_length")
_PROPERTIES_LENGTH_SIZE = layout.PROPERTIES_LENGTH.size
_BLANK_SIZE_BYTES = layout.BLANK.size
_MIN_RECORD_SIZE = layout.MIN_RECORD_SIZE
_FRAME_MAGIC, _FRAME_BLANK_MAGIC = dledger.ENTRY_MAGIC, dledger.BLANK_MAGIC
_FRAME_SIZE = dledger.ENTRY_HEADER.size
_AT_FRAME_OFFSET = dledger.ENTRY_HEADER.offset_of("position")
_AT_FRAME_BODY_SIZE = dledger.ENTRY_HEADER.offset_of("body_size")


@inlined
def _is_frame(window, position, offset):
    """Return whether the header of a DLedger entry is at a position, before the head of the record that it claims."""
    record = position + _FRAME_SIZE
    magic = load_be_i32(window, record + _AT_MAGIC)
    body_size = load_be_i32(window, position + _AT_FRAME_BODY_SIZE)
    return (
        load_be_i32(window, position) == _FRAME_MAGIC
        and load_be_i64(window, position + _AT_FRAME_OFFSET) == offset
        and load_be_i32(window, position + _MAGIC_SIZE) == body_size + _FRAME_SIZE
        and (magic == _V1 or magic == _V2 or magic == _BOLTMQ)
        and load_be_i32(window, record) == body_size
        and load_be_i64(window, record + _AT_PHYSICAL_OFFSET) == offset + _FRAME_SIZE
    )


@compiled
def classify_span(
    window, window_length, position, offset, segment_end, file_end, max_record_bytes, verifies_crc, record_parts, row
):
    """Return kind and size of the bytes at a position: record, BLANK, zeros or damage; locate a record's parts.

    The parts of a record are written to `record_parts` and `row`.
    """
    available = window_length - position
    left = file_end - offset
    if available < _BLANK_SIZE_BYTES:
        if left > available:
            return MORE, 0
        for at in range(position, window_length):
            if window[at] != 0:
                return _CUT, 0
        return UNWRITTEN, available
    size = np.int64(load_be_i32(window, position))
    magic = load_be_i32(window, position + _AT_MAGIC)
    # Trusted, because a record should begin here. In a search after damage, the caller only notes it.
    if magic == _BLANK_MAGIC or magic == _BOLTMQ_BLANK:
        if size == segment_end - offset:
            return BLANK, size
        return _BLANK_SIZE, 0
    if size == 0 and magic == 0:
        return UNWRITTEN, 0
    if size == _FRAME_BLANK_MAGIC and magic == segment_end - offset:
        return BLANK, np.int64(magic)
    if magic != _V1 and magic != _V2 and magic != _BOLTMQ:
        if size == _FRAME_MAGIC:
            if available < _FRAME_SIZE + _HEAD_SIZE and left > available:
                return MORE, 0
            if available >= _FRAME_SIZE + _HEAD_SIZE and _is_frame(window, position, offset):
                return FRAME, _FRAME_SIZE
        return _MAGIC, 0
    if size < _MIN_RECORD_SIZE or size > max_record_bytes:
        return _SIZE, 0
    if size > left:
        return _CUT, 0
    if size > available:
        return MORE, 0
    # The own offset is compared before any length is used. Without it, a body with a copied record would pass.
    if load_be_i64(window, position + _AT_PHYSICAL_OFFSET) != offset:
        return _PHYSICAL_OFFSET, 0
    return _examine_record_parts(window, position, size, magic, verifies_crc, record_parts, row), size


@inlined
def _locate_record_parts(window, position, size, magic):
    """Locate a record's parts, and check their lengths; the first position is -1 if the lengths do not fit.

    Returns:
        Places of store host and body, the body's length, place and length of the topic, and of the properties.
    """
    end = position + size
    sys_flag = load_be_i32(window, position + _AT_SYS_FLAG)
    store_host = position + _HEAD_SIZE + V4_SIZE + _STORED_SIZE
    body = store_host + V4_SIZE + _TAIL_SIZE
    # Nearly all hosts are IPv4, so the positions for them are computed first, and moved for the others.
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
    # Signed, as in the broker: it refuses properties of more than 32,767 bytes, so a negative length is damage.
    if properties_length != np.int64(load_be_i16(window, properties - _PROPERTIES_LENGTH_SIZE)):
        return _NOWHERE, body, body_length, topic, topic_length, _NOWHERE, _NOWHERE
    return store_host, body, body_length, topic, topic_length, properties, properties_length


@inlined
def _store_record_parts(record_parts, row, position, located_parts):
    store_host, body, body_length, topic, topic_length, properties, properties_length = located_parts
    record_parts[START, row] = position
    record_parts[STORE_HOST, row] = store_host
    record_parts[BODY, row] = body
    record_parts[BODY_LENGTH, row] = body_length
    record_parts[TOPIC, row] = topic
    record_parts[TOPIC_LENGTH, row] = topic_length
    record_parts[PROPERTIES, row] = properties
    record_parts[PROPERTIES_LENGTH, row] = properties_length


@inlined
def _body_matches_crc(window, position, crc_mask, body, body_length):
    """Return whether a body matches its CRC, of which only the bits in `crc_mask` are compared."""
    crc = np.int64(crc32(window, body, body_length)) & crc_mask
    return crc == np.int64(load_be_i32(window, position + _AT_CRC)) & 0xFFFFFFFF


@inlined
def body_matches_crc(window, position, body, body_length):
    """Return whether a record's body matches its CRC."""
    is_boltmq = load_be_i32(window, position + _AT_MAGIC) == _BOLTMQ
    return _body_matches_crc(window, position, _BOLTMQ_CRC_MASK if is_boltmq else _CRC_MASK, body, body_length)


@compiled
def locate_parts(window, position, size, magic, record_parts, row):
    """Locate the parts of a record; return False if their lengths do not add up to its size."""
    located = _locate_record_parts(window, position, size, magic)
    if located[0] < 0:
        return False
    _store_record_parts(record_parts, row, position, located)
    return True


@compiled
def _examine_record_parts(window, position, size, magic, verifies_crc, record_parts, row):
    located = _locate_record_parts(window, position, size, magic)
    if located[0] < 0:
        return _PART_LENGTHS
    if verifies_crc and not body_matches_crc(window, position, located[1], located[2]):
        return _BODY_CRC
    _store_record_parts(record_parts, row, position, located)
    return RECORD


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

    A store has one dialect, so the dialect is determined once, for the next record, and not for each record.

    Returns:
        The start of the first record that was not read, and the number of filled columns of `record_parts`.
    """
    # A record belongs to the range in which it begins, even if it ends after it.
    end = min(window_length - _MIN_RECORD_SIZE + 1, range_end - window_offset)
    if position < end and load_be_i32(window, position + _AT_MAGIC) == _BOLTMQ:
        magics = _BOLTMQ, _BOLTMQ, _BOLTMQ_CRC_MASK
    else:
        magics = _V1, _V2, _CRC_MASK
    return _read_records_with_magics(
        window,
        window_length,
        window_offset,
        end,
        max_record_bytes,
        verifies_crc,
        position,
        record_parts,
        row,
        max_records,
        magics,
    )


@compiled
def _read_records_with_magics(
    window,
    window_length,
    window_offset,
    end,
    max_record_bytes,
    verifies_crc,
    position,
    record_parts,
    row,
    max_records,
    magics_and_crc_mask,
):
    """Read consecutive intact records that have one of two magic codes, up to a position of the window.

    Nearly all records of a log are read here, so only the CRC is called, and no state is kept in memory.
    """
    short_topic, long_topic, mask = magics_and_crc_mask
    while row < max_records and position < end:
        size = np.int64(load_be_i32(window, position))
        magic = load_be_i32(window, position + _AT_MAGIC)
        if magic != short_topic and magic != long_topic:
            # The header of a DLedger entry; what follows it is examined as any other record is.
            if (
                size != _FRAME_MAGIC
                or position + _FRAME_SIZE + _HEAD_SIZE > window_length
                or not _is_frame(window, position, window_offset + position)
            ):
                break
            position += _FRAME_SIZE
            continue
        if size < _MIN_RECORD_SIZE or size > max_record_bytes or size > window_length - position:
            break
        if load_be_i64(window, position + _AT_PHYSICAL_OFFSET) != window_offset + position:
            break
        located = _locate_record_parts(window, position, size, magic)
        if located[0] < 0 or (verifies_crc and not _body_matches_crc(window, position, mask, located[1], located[2])):
            break
        _store_record_parts(record_parts, row, position, located)
        row += 1
        position += size
    return position, row


@compiled
def next_possible_start(window, search_start, window_length, window_offset):
    """Return the next position at which a record or BLANK has a known magic code; -1 if there is none."""
    end = window_length - _MAGIC_SIZE + 1
    block = search_start + _AT_MAGIC
    while block < end:
        mask = mask_equal_bytes(window, block, _FIRST_OF_RECORD, _FIRST_OF_BLANK)
        while mask != 0:
            at = block + lowest_set_bit_index(mask)
            mask &= mask - np.uint64(1)
            # The mask covers 64 bytes, and the last block reaches into the padding after the window.
            if at < end:
                magic = load_be_i32(window, at)
                if magic == _V1 or magic == _V2 or magic == _BLANK_MAGIC:
                    return at - _AT_MAGIC
                if magic == _BOLTMQ or magic == _BOLTMQ_BLANK:
                    return at - _AT_MAGIC
        block += 64
    return -1


@compiled
def start_mark_size():
    """Return how many bytes from a position on `next_possible_start` needs to recognize a record or BLANK there."""
    return _AT_MAGIC + _MAGIC_SIZE


@compiled
def ends_bad_range(span_kind):
    """Return True for a record whose body matches its CRC, at which a bad range before it ends."""
    return span_kind == RECORD


@compiled
def read_record_head(window, position):
    """Return the physical offset and the size that a record states in its fixed-length fields."""
    return load_be_i64(window, position + _AT_PHYSICAL_OFFSET), np.int64(load_be_i32(window, position))


@compiled
def record_head_size():
    """Return the size in bytes of the fixed-length fields at a record's start."""
    return _HEAD_SIZE


register_implementations(
    CommitLogLayout,
    classify_span,
    read_records,
    next_possible_start,
    start_mark_size,
    ends_bad_range,
    body_matches_crc,
    read_record_head,
    record_head_size,
)
