"""Columns of journal records: fields of all sizes, addresses, ids, and texts."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.jmq.kernel.decimal_text import write_unsigned
from commitlake.connectors.formats.jmq.kernel.properties import split_properties
from commitlake.connectors.formats.jmq.kernel.records import APP_LENGTH, BUSINESS_ID_LENGTH, JournalLayout
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.columns import gather_i32, intern_spans
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.layouts import register_implementations
from commitlake.connectors.reading.kernel.memory_access import OVERWRITE, load_be_i32, load_be_i64, load_u8
from commitlake.connectors.reading.kernel.strings import copy_span, intern_span
from commitlake.schemas.layouts.jmq.journal import HEAD
from commitlake.schemas.layouts.jmq.properties import MAX_SIZE

# Columns of `fields32`: position of four bytes, and a mask of the bits that count. Columns of `fields64`: position of a
# number, and of a delay that is added to it, NO_DELAY for none. All positions are relative to the record's first byte.
FIELD_OFFSET, FIELD_MASK = range(2)
FIELD_DELAY = 1
NO_DELAY = -1

_OFFSET, _QUEUE_ID, _QUEUE_OFFSET = (HEAD.offset_of(name) for name in ("journal_offset", "queue_id", "queue_offset"))
_SENT, _STORE_DELAY = HEAD.offset_of("send_timestamp"), HEAD.offset_of("store_delay")
_CLIENT, _SERVER = HEAD.offset_of("client_ip"), HEAD.offset_of("server_ip")
ADDRESS_SIZE = _SERVER - _CLIENT
_TAG, _TAG_SIZE = HEAD.offset_of("business_tag"), 2
_FLAGS = HEAD.offset_of("sys_flag")
_FIXED_NEED = 96  # output bytes of a record besides its texts: addresses, tag, three numbers
_SLASH = np.uint8(ord("/"))
_REPLACEMENT_BYTES = 3  # size of U+FFFD, which replaces each invalid byte
_MAX_BROKER_NAME = 1 << 16
assert _REPLACEMENT_BYTES * (3 * 0xFF + MAX_SIZE + MAX_SIZE // 2) + _MAX_BROKER_NAME + _FIXED_NEED < b.MAX_RECORD_TEXT


@compiled
def read_filter_values(window, record_parts, row):
    """Return a record's journal offset, store time and queue id, by which the kernel filters."""
    start = record_parts[h.START, row]
    return (
        load_be_i64(window, start + _OFFSET),
        load_be_i64(window, start + _SENT) + load_be_i32(window, start + _STORE_DELAY),
        np.int32(load_u8(window, start + _QUEUE_ID)),
    )


@compiled
def max_text_size(record_parts, row, column_selection):
    """Return the maximum number of bytes that a record adds to any of the outputs.

    An entry has at least three bytes.
    """
    properties = record_parts[h.PROPERTIES_LENGTH, row]
    # Half as much again, because room for entries is counted as four bytes for each (`decode`), and an entry may have
    # three here.
    texts = record_parts[h.TOPIC_LENGTH, row] + record_parts[APP_LENGTH, row] + record_parts[BUSINESS_ID_LENGTH, row]
    return texts + properties + properties // 2 + len(column_selection.id_suffix) + _FIXED_NEED


@compiled
def _gather_int64_or_time(window, starts, field_offset, delay_offset, out):
    if delay_offset < 0:
        for row in range(len(starts)):
            out[row] = load_be_i64(window, starts[row] + field_offset)
    else:
        for row in range(len(starts)):
            start = starts[row]
            out[row] = load_be_i64(window, start + field_offset) + load_be_i32(window, start + delay_offset)


@compiled
def _intern_fields(window, starts, field_offset, field_size, seed, interner, out):
    """Write to `out`, for each record, the number that `interner` gives to the value of a field of fixed size."""
    counts, table, texts_at, texts = interner
    likely = np.int64(-1)
    for row in range(len(starts)):
        likely = intern_span(
            window, starts[row] + field_offset, field_size, seed, likely, counts, table, texts_at, texts
        )
        out[row] = likely


@compiled
def _write_message_ids(window, record_parts, first_row, row_count, id_suffix, out_texts):
    """Write each record's message id, `topic/queue/queueOffset@broker`, with the topic as it is stored."""
    target = out_texts.used[b.UNIQUE_BYTES]
    # The suffix is padded so that `copy_span`, which copies whole blocks, may read past its end.
    length = len(id_suffix) - OVERWRITE
    for row in range(first_row, first_row + row_count):
        start = record_parts[h.START, row]
        copy_span(window, record_parts[h.TOPIC, row], record_parts[h.TOPIC_LENGTH, row], out_texts.unique, target)
        target += record_parts[h.TOPIC_LENGTH, row]
        out_texts.unique[target] = _SLASH
        target = write_unsigned(np.uint64(load_u8(window, start + _QUEUE_ID)), out_texts.unique, target + 1)
        out_texts.unique[target] = _SLASH
        target = write_unsigned(np.uint64(load_be_i64(window, start + _QUEUE_OFFSET)), out_texts.unique, target + 1)
        copy_span(id_suffix, np.int64(0), length, out_texts.unique, target)
        target += length
        out_texts.unique_offsets[row + 1] = target
        out_texts.present[b.UNIQUE_KEY, row] = True
    out_texts.used[b.UNIQUE_BYTES] = target


@compiled
def decode_rows(
    window, record_parts, first_row, row_count, column_selection, interners, scratch, out_columns, out_texts
):
    """Decode located records, and write record i of `record_parts` to row i of the output arrays."""
    names, topics, tags, groups, born_hosts, store_hosts = interners
    wanted, seed = column_selection.wanted, column_selection.seed
    end = first_row + row_count
    starts = record_parts[h.START, first_row:end]
    for column in range(len(column_selection.fields32)):
        offset, mask = column_selection.fields32[column, FIELD_OFFSET], column_selection.fields32[column, FIELD_MASK]
        gather_i32(window, starts, offset, mask, out_columns.numbers32[column, first_row:end])
    for column in range(len(column_selection.fields64)):
        offset, delay = column_selection.fields64[column, FIELD_OFFSET], column_selection.fields64[column, FIELD_DELAY]
        _gather_int64_or_time(window, starts, offset, delay, out_columns.numbers64[column, first_row:end])
    for row in range(first_row, end):
        out_columns.sys_flags[row] = load_u8(window, record_parts[h.START, row] + _FLAGS)
    if wanted & b.WANT_TOPIC:
        intern_spans(
            window, record_parts[h.TOPIC, first_row:end], record_parts[h.TOPIC_LENGTH, first_row:end], seed, topics,
            out_columns.codes[b.TOPIC, first_row:end],
        )  # fmt: skip
    if wanted & b.WANT_TAGS:
        _intern_fields(window, starts, _TAG, _TAG_SIZE, seed, tags, out_columns.codes[b.TAGS, first_row:end])
    if wanted & b.WANT_BORN_HOST:
        _intern_fields(
            window, starts, _CLIENT, ADDRESS_SIZE, seed, born_hosts, out_columns.codes[b.BORN_HOST, first_row:end]
        )
    if wanted & b.WANT_STORE_HOST:
        _intern_fields(
            window, starts, _SERVER, ADDRESS_SIZE, seed, store_hosts, out_columns.codes[b.STORE_HOST, first_row:end]
        )
    if wanted & b.WANT_UNIQUE_KEY:
        _write_message_ids(window, record_parts, first_row, row_count, column_selection.id_suffix, out_texts)
    if wanted & b.WANT_TEXT:
        split_properties(
            window,
            record_parts,
            first_row,
            row_count,
            seed,
            wanted,
            names,
            groups,
            scratch,
            out_columns.codes[b.PRODUCER_GROUP],
            out_texts,
        )


register_implementations(JournalLayout, read_filter_values, max_text_size, decode_rows)
