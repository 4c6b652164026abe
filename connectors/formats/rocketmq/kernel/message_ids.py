"""Message ids of CommitLog records, which are not stored in records."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.rocketmq.kernel.records import STORE_HOST
from commitlake.connectors.reading.kernel.compiled import compiled
from commitlake.connectors.reading.kernel.hop import START
from commitlake.connectors.reading.kernel.memory import copy_block, load_be_i32, load_le_u64, store_be_u64
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE


@compiled
def _hex_digits(value):
    """Return the eight upper-case hex digits of a 32-bit number, as a word with the first digit on top."""
    word = np.uint64(value)
    word = (word | (word << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = (word | (word << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word | (word << np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    letters = ((word + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    return word + np.uint64(0x3030303030303030) + letters * np.uint64(7)


@compiled
def _write_hex(window, position, size, out, target):
    """Write `size` bytes, a multiple of four, as hex."""
    for at in range(0, size, 4):
        number = np.uint64(load_be_i32(window, position + at)) & np.uint64(0xFFFFFFFF)
        store_be_u64(out, target + 2 * at, _hex_digits(number))


@compiled
def write_message_ids(window, parts, first_row, count, sys_flags, v6_bit, physical_offset_field, start, offsets, out):
    """Write offset message ids, hex of store host and physical offset, as `schemas.layouts.rocketmq.message_id` does.

    Args:
        window: bytes that contain the records.
        parts: see `hop`; the first row has the start of each record.
        first_row: the first record.
        count: the number of records.
        sys_flags: sys_flag of each record.
        v6_bit: the bit of sys_flag for a store host of 20 bytes.
        physical_offset_field: position of the physical offset in a record.
        start: number of filled bytes of `out`.
        offsets: int32 out, Arrow offsets.
        out: uint8 out, with OVERWRITE bytes more than count.

    Returns:
        The new number of filled bytes of `out`.
    """
    target = start
    last_host = np.uint64(0)
    last_text = np.int64(-1)
    for row in range(first_row, first_row + count):
        host = parts[STORE_HOST, row]
        if sys_flags[row] & v6_bit:
            _write_hex(window, host, V6_SIZE, out, target)
            target += 2 * V6_SIZE
        else:
            word = load_le_u64(window, host)
            if last_text >= 0 and word == last_host:  # the common case: all records of one broker
                copy_block(out, last_text, out, target)
            else:
                _write_hex(window, host, V4_SIZE, out, target)
                last_host, last_text = word, target
            target += 2 * V4_SIZE
        _write_hex(window, parts[START, row] + physical_offset_field, 8, out, target)
        target += 16
        offsets[row + 1] = target
    return target
