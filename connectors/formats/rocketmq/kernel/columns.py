"""Columns of CommitLog records: positions of fields, texts to be interned, copied or split, and message ids."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.rocketmq.kernel.properties import split_properties
from commitlake.connectors.formats.rocketmq.kernel.records import STORE_HOST, CommitLogLayout
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.columns import (
    gather_i32,
    gather_i64,
    intern_hosts,
    intern_spans,
)
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.layouts import implement
from commitlake.connectors.reading.kernel.memory_access import (
    copy_32_bytes,
    load_be_i32,
    load_be_i64,
    load_le_u64,
    store_be_u64,
)
from commitlake.connectors.reading.kernel.record_walk import START
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED
from commitlake.schemas.layouts.rocketmq.hosts import V4_SIZE, V6_SIZE
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6


@compiled
def _hex_digits(value):
    """Return the eight upper-case hex digits of a 32-bit number in a 64-bit word, first digit in the top byte."""
    word = np.uint64(value)
    word = (word | (word << np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = (word | (word << np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word | (word << np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    letters = ((word + np.uint64(0x0606060606060606)) >> np.uint64(4)) & np.uint64(0x0101010101010101)
    return word + np.uint64(0x3030303030303030) + letters * np.uint64(7)


@compiled
def _write_hex(window, position, size, out, target):
    """Write `size` bytes, a multiple of four, as hex digits."""
    for at in range(0, size, 4):
        number = np.uint64(load_be_i32(window, position + at)) & np.uint64(0xFFFFFFFF)
        store_be_u64(out, target + 2 * at, _hex_digits(number))


@compiled
def write_message_ids(
    window, parts, first_row, count, sys_flags, v6_bit, physical_offset_field, start_position, offsets, out
):
    """Write offset message ids, hex of store host and physical offset, as `schemas.layouts.rocketmq.message_id` does.

    Args:
        window: bytes that contain the records.
        parts: see `hop`; the first row has the start of each record.
        first_row: the first record.
        count: the number of records.
        sys_flags: sys_flag of each record.
        v6_bit: the bit of sys_flag for a store host of 20 bytes.
        physical_offset_field: position of the physical offset in a record.
        start_position: number of filled bytes of `out`.
        offsets: int32 out, Arrow offsets.
        out: uint8 out, with OVERWRITE bytes more than count.

    Returns:
        The new number of filled bytes of `out`.
    """
    target = start_position
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
                copy_32_bytes(out, last_text, out, target)
            else:
                _write_hex(window, host, V4_SIZE, out, target)
                last_host, last_text = word, target
            target += 2 * V4_SIZE
        _write_hex(window, parts[START, row] + physical_offset_field, 8, out, target)
        target += 16
        offsets[row + 1] = target
    return target


FROM_START, FROM_STORE_HOST, FROM_BODY = h.START, STORE_HOST, h.BODY
"""Rows of `parts` from which fields are located."""

# Columns of `fields32` and `fields64`: a row of `parts`, and the distance of the field from that position. `fields32`
# also has a mask of the bits that count.
FIELD_BASE, FIELD_OFFSET, FIELD_MASK = range(3)
ALL_BITS = -1

_SYS_FLAG = HEAD.offset_of("sys_flag")
_PHYSICAL_OFFSET = HEAD.offset_of("physical_offset")
_QUEUE_ID = HEAD.offset_of("queue_id")
_STORE_TIME = -STORED.size
_HEAD_SIZE = HEAD.size
_FIXED_NEED = 64  # output bytes of a record besides its topic and properties: hosts


@compiled
def read_filter_values(window, parts, row):
    """Return a record's own offset, store time and queue id; see `layouts`."""
    start = parts[h.START, row]
    return (
        load_be_i64(window, start + _PHYSICAL_OFFSET),
        load_be_i64(window, parts[STORE_HOST, row] + _STORE_TIME),
        load_be_i32(window, start + _QUEUE_ID),
    )


@compiled
def max_text_size(parts, row, plan):
    """Return the maximum number of bytes that a record adds to any output; see `layouts`."""
    return parts[h.TOPIC_LENGTH, row] + parts[h.PROPERTIES_LENGTH, row] + _FIXED_NEED


@compiled
def decode_rows(window, parts, first, count, plan, interners, scratch, out, text):
    """Decode located records into rows of the outputs; see `layouts`."""
    names, topics, tags, groups, born_hosts, store_hosts = interners
    wanted, seed = plan.wanted, plan.seed
    end = first + count
    for column in range(len(plan.fields32)):
        base, offset = plan.fields32[column, FIELD_BASE], plan.fields32[column, FIELD_OFFSET]
        mask = plan.fields32[column, FIELD_MASK]
        gather_i32(window, parts[base, first:end], offset, mask, out.numbers32[column, first:end])
    for column in range(len(plan.fields64)):
        base, offset = plan.fields64[column, FIELD_BASE], plan.fields64[column, FIELD_OFFSET]
        gather_i64(window, parts[base, first:end], offset, out.numbers64[column, first:end])
    # Always decoded, wanted or not, because the flags tell the sizes of the hosts.
    flags = out.sys_flags[first:end]
    gather_i32(window, parts[h.START, first:end], _SYS_FLAG, ALL_BITS, flags)
    if wanted & b.WANT_TOPIC:
        intern_spans(
            window, parts[h.TOPIC, first:end], parts[h.TOPIC_LENGTH, first:end], seed, topics,
            out.codes[b.TOPIC, first:end],
        )  # fmt: skip
    if wanted & b.WANT_BORN_HOST:
        intern_hosts(
            window, parts[h.START, first:end], _HEAD_SIZE, flags, BORN_HOST_V6, seed, born_hosts,
            out.codes[b.BORN_HOST, first:end],
        )  # fmt: skip
    if wanted & b.WANT_STORE_HOST:
        intern_hosts(
            window, parts[STORE_HOST, first:end], 0, flags, STORE_HOST_V6, seed, store_hosts,
            out.codes[b.STORE_HOST, first:end],
        )  # fmt: skip
    if wanted & b.WANT_MESSAGE_ID:
        out.message_id_size[0] = write_message_ids(
            window, parts, first, count, out.sys_flags, STORE_HOST_V6, _PHYSICAL_OFFSET, out.message_id_size[0],
            out.message_id_offsets, out.message_ids,
        )  # fmt: skip
    if wanted & b.WANT_TEXT:
        split_properties(
            window, parts, first, count, seed, wanted, names, topics, tags, groups, scratch, out.codes, text
        )


implement(CommitLogLayout, read_filter_values, max_text_size, decode_rows)
