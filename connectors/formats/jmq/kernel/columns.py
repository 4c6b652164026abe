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
from commitlake.connectors.reading.kernel.layouts import implement
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
def read_filter_values(window, parts, row):
    """Return a record's own offset, store time and queue id; see `layouts`."""
    start = parts[h.START, row]
    return (
        load_be_i64(window, start + _OFFSET),
        load_be_i64(window, start + _SENT) + load_be_i32(window, start + _STORE_DELAY),
        np.int32(load_u8(window, start + _QUEUE_ID)),
    )


@compiled
def max_text_size(parts, row, plan):
    """Return the maximum number of bytes that a record adds to any output; see `layouts`.

    An entry has at least three bytes.
    """
    properties = parts[h.PROPERTIES_LENGTH, row]
    # Half as much again, because room for entries is counted as four bytes for each (`decode`), and an entry may have
    # three here.
    texts = parts[h.TOPIC_LENGTH, row] + parts[APP_LENGTH, row] + parts[BUSINESS_ID_LENGTH, row]
    return texts + properties + properties // 2 + len(plan.id_suffix) + _FIXED_NEED


@compiled
def _gather_long(window, starts, offset, delay_offset, out):
    if delay_offset < 0:
        for row in range(len(starts)):
            out[row] = load_be_i64(window, starts[row] + offset)
    else:
        for row in range(len(starts)):
            start = starts[row]
            out[row] = load_be_i64(window, start + offset) + load_be_i32(window, start + delay_offset)


@compiled
def _intern_fields(window, starts, offset, size, seed, interner, out):
    """Number the distinct values of a fixed-size field that is at the same offset in each record."""
    counts, table, texts_at, texts = interner
    likely = np.int64(-1)
    for row in range(len(starts)):
        likely = intern_span(window, starts[row] + offset, size, seed, likely, counts, table, texts_at, texts)
        out[row] = likely


@compiled
def _write_ids(window, parts, first, count, suffix, text):
    """Write message ids in the form of `schemas.layouts.jmq.queue`, with topics as they are stored."""
    target = text.used[b.UNIQUE_BYTES]
    # The suffix is padded so that `copy_span`, which copies whole blocks, may read past its end.
    length = len(suffix) - OVERWRITE
    for row in range(first, first + count):
        start = parts[h.START, row]
        copy_span(window, parts[h.TOPIC, row], parts[h.TOPIC_LENGTH, row], text.unique, target)
        target += parts[h.TOPIC_LENGTH, row]
        text.unique[target] = _SLASH
        target = write_unsigned(np.uint64(load_u8(window, start + _QUEUE_ID)), text.unique, target + 1)
        text.unique[target] = _SLASH
        target = write_unsigned(np.uint64(load_be_i64(window, start + _QUEUE_OFFSET)), text.unique, target + 1)
        copy_span(suffix, np.int64(0), length, text.unique, target)
        target += length
        text.unique_offsets[row + 1] = target
        text.present[b.UNIQUE_KEY, row] = True
    text.used[b.UNIQUE_BYTES] = target


@compiled
def decode_rows(window, parts, first, count, plan, interners, scratch, out, text):
    """Decode located records into rows of the outputs; see `layouts`."""
    names, topics, tags, groups, born_hosts, store_hosts = interners
    wanted, seed = plan.wanted, plan.seed
    end = first + count
    starts = parts[h.START, first:end]
    for column in range(len(plan.fields32)):
        offset, mask = plan.fields32[column, FIELD_OFFSET], plan.fields32[column, FIELD_MASK]
        gather_i32(window, starts, offset, mask, out.numbers32[column, first:end])
    for column in range(len(plan.fields64)):
        offset, delay = plan.fields64[column, FIELD_OFFSET], plan.fields64[column, FIELD_DELAY]
        _gather_long(window, starts, offset, delay, out.numbers64[column, first:end])
    for row in range(first, end):
        out.sys_flags[row] = load_u8(window, parts[h.START, row] + _FLAGS)
    if wanted & b.WANT_TOPIC:
        intern_spans(
            window, parts[h.TOPIC, first:end], parts[h.TOPIC_LENGTH, first:end], seed, topics,
            out.codes[b.TOPIC, first:end],
        )  # fmt: skip
    if wanted & b.WANT_TAGS:
        _intern_fields(window, starts, _TAG, _TAG_SIZE, seed, tags, out.codes[b.TAGS, first:end])
    if wanted & b.WANT_BORN_HOST:
        _intern_fields(window, starts, _CLIENT, ADDRESS_SIZE, seed, born_hosts, out.codes[b.BORN_HOST, first:end])
    if wanted & b.WANT_STORE_HOST:
        _intern_fields(window, starts, _SERVER, ADDRESS_SIZE, seed, store_hosts, out.codes[b.STORE_HOST, first:end])
    if wanted & b.WANT_UNIQUE_KEY:
        _write_ids(window, parts, first, count, plan.id_suffix, text)
    if wanted & b.WANT_TEXT:
        split_properties(
            window, parts, first, count, seed, wanted, names, groups, scratch, out.codes[b.PRODUCER_GROUP], text
        )


implement(JournalLayout, read_filter_values, max_text_size, decode_rows)
