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
from commitlake.connectors.reading.kernel.layouts import register_implementations
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
def _write_hex(window, position, size, out, out_position):
    """Write `size` bytes, a multiple of four, as hex digits."""
    for at in range(0, size, 4):
        number = np.uint64(load_be_i32(window, position + at)) & np.uint64(0xFFFFFFFF)
        store_be_u64(out, out_position + 2 * at, _hex_digits(number))


@compiled
def write_message_ids(
    window, record_parts, first_row, row_count, sys_flags, v6_bit, physical_offset_field, out_position, out_offsets, out
):
    """Write each record's message id: its store host and physical offset as hex digits.

    Args:
        window: bytes that contain the records.
        record_parts: see `walk_records`; the first row has the start of each record.
        first_row: the first record.
        row_count: the number of records.
        sys_flags: sys_flag of each record.
        v6_bit: the bit of sys_flag for a store host of 20 bytes.
        physical_offset_field: position of the physical offset in a record.
        out_position: number of filled bytes of `out`.
        out_offsets: int32 out, Arrow offsets.
        out: uint8 out, with OVERWRITE bytes more than count.

    Returns:
        The new number of filled bytes of `out`.
    """
    target = out_position
    last_host = np.uint64(0)
    last_text = np.int64(-1)
    for row in range(first_row, first_row + row_count):
        host = record_parts[STORE_HOST, row]
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
        _write_hex(window, record_parts[START, row] + physical_offset_field, 8, out, target)
        target += 16
        out_offsets[row + 1] = target
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
def read_filter_values(window, record_parts, row):
    """Return a record's physical offset, store time and queue id, by which the kernel filters."""
    start = record_parts[h.START, row]
    return (
        load_be_i64(window, start + _PHYSICAL_OFFSET),
        load_be_i64(window, record_parts[STORE_HOST, row] + _STORE_TIME),
        load_be_i32(window, start + _QUEUE_ID),
    )


@compiled
def max_text_size(record_parts, row, column_selection):
    """Return the maximum number of bytes that a record adds to any of the outputs."""
    return record_parts[h.TOPIC_LENGTH, row] + record_parts[h.PROPERTIES_LENGTH, row] + _FIXED_NEED


@compiled
def decode_rows(
    window, record_parts, first_row, row_count, column_selection, interners, scratch, out_columns, out_texts
):
    """Decode located records, and write record i of `record_parts` to row i of the output arrays."""
    names, topics, tags, groups, born_hosts, store_hosts = interners
    wanted, seed = column_selection.wanted, column_selection.seed
    end = first_row + row_count
    for column in range(len(column_selection.fields32)):
        base, offset = column_selection.fields32[column, FIELD_BASE], column_selection.fields32[column, FIELD_OFFSET]
        mask = column_selection.fields32[column, FIELD_MASK]
        gather_i32(
            window, record_parts[base, first_row:end], offset, mask, out_columns.numbers32[column, first_row:end]
        )
    for column in range(len(column_selection.fields64)):
        base, offset = column_selection.fields64[column, FIELD_BASE], column_selection.fields64[column, FIELD_OFFSET]
        gather_i64(window, record_parts[base, first_row:end], offset, out_columns.numbers64[column, first_row:end])
    # Always decoded, wanted or not, because the flags tell the sizes of the hosts.
    flags = out_columns.sys_flags[first_row:end]
    gather_i32(window, record_parts[h.START, first_row:end], _SYS_FLAG, ALL_BITS, flags)
    if wanted & b.WANT_TOPIC:
        intern_spans(
            window, record_parts[h.TOPIC, first_row:end], record_parts[h.TOPIC_LENGTH, first_row:end], seed, topics,
            out_columns.codes[b.TOPIC, first_row:end],
        )  # fmt: skip
    if wanted & b.WANT_BORN_HOST:
        intern_hosts(
            window, record_parts[h.START, first_row:end], _HEAD_SIZE, flags, BORN_HOST_V6, seed, born_hosts,
            out_columns.codes[b.BORN_HOST, first_row:end],
        )  # fmt: skip
    if wanted & b.WANT_STORE_HOST:
        intern_hosts(
            window, record_parts[STORE_HOST, first_row:end], 0, flags, STORE_HOST_V6, seed, store_hosts,
            out_columns.codes[b.STORE_HOST, first_row:end],
        )  # fmt: skip
    if wanted & b.WANT_MESSAGE_ID:
        out_columns.message_id_size[0] = write_message_ids(
            window, record_parts, first_row, row_count, out_columns.sys_flags, STORE_HOST_V6, _PHYSICAL_OFFSET,
            out_columns.message_id_size[0],
            out_columns.message_id_offsets, out_columns.message_ids,
        )  # fmt: skip
    if wanted & b.WANT_TEXT:
        split_properties(
            window,
            record_parts,
            first_row,
            row_count,
            seed,
            wanted,
            names,
            topics,
            tags,
            groups,
            scratch,
            out_columns.codes,
            out_texts,
        )


register_implementations(CommitLogLayout, read_filter_values, max_text_size, decode_rows)
