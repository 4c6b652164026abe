"""Columns of CommitLog records: positions of fields, and texts to be interned, copied or split."""

from __future__ import annotations

from commitlake.connectors.formats.rocketmq.kernel.message_ids import write_message_ids
from commitlake.connectors.formats.rocketmq.kernel.properties import split_properties
from commitlake.connectors.formats.rocketmq.kernel.records import STORE_HOST, CommitLogLayout
from commitlake.connectors.reading.kernel import buffers as b
from commitlake.connectors.reading.kernel import hop as h
from commitlake.connectors.reading.kernel.columns import (
    gather_i32,
    gather_i64,
    intern_hosts,
    intern_spans,
)
from commitlake.connectors.reading.kernel.compiled import compiled
from commitlake.connectors.reading.kernel.layouts import implement
from commitlake.connectors.reading.kernel.memory import load_be_i32, load_be_i64
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6

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
def filtered_by(window, parts, row):
    """Return a record's own offset, store time and queue id; see `layouts`."""
    start = parts[h.START, row]
    return (
        load_be_i64(window, start + _PHYSICAL_OFFSET),
        load_be_i64(window, parts[STORE_HOST, row] + _STORE_TIME),
        load_be_i32(window, start + _QUEUE_ID),
    )


@compiled
def text_size(parts, row, plan):
    """Return how many bytes a record may add to any output; see `layouts`."""
    return parts[h.TOPIC_LENGTH, row] + parts[h.PROPERTIES_LENGTH, row] + _FIXED_NEED


@compiled
def decode(window, parts, first, count, plan, interners, scratch, out, text):
    """Decode records into rows; see `layouts`."""
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


implement(CommitLogLayout, filtered_by, text_size, decode)
