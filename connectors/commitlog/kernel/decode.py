"""From record to record, and all its columns while it is in the processor's cache.

`read_batch` hops over some records, drops those that are not wanted, and decodes the rest before it hops on: no record
is fetched from memory twice, and a batch is one call. What it writes to is in `buffers`.
"""

from __future__ import annotations

import numpy as np

from connectors.commitlog.kernel import buffers as b
from connectors.commitlog.kernel import hop as h
from connectors.commitlog.kernel.columns import (
    gather_i32,
    gather_i64,
    intern_hosts,
    intern_spans,
    write_message_ids,
)
from connectors.commitlog.kernel.compiled import compiled
from connectors.commitlog.kernel.memory import OVERWRITE, PADDING, load_be_i32, load_be_i64
from connectors.commitlog.kernel.properties import split_properties
from connectors.commitlog.kernel.strings import DISTINCT, TEXT_END
from schemas.layouts.commitlog import HEAD, STORED, TAIL
from schemas.layouts.sysflag import BORN_HOST_V6, STORE_HOST_V6

CHUNK = 256
"""Records that are hopped over before they are decoded: few enough to stay in the cache."""

FROM_START, FROM_STORE_HOST, FROM_BODY = h.START, h.STORE_HOST, h.BODY
"""Rows of `parts` that fields are found from."""

# Columns of `fields32` and `fields64`: a row of `parts`, and how far from there the field lies.
FIELD_BASE, FIELD_OFFSET = range(2)

# Places in `bounds`: of the records wanted, the first that is and the first that is not.
MIN_OFFSET, END_OFFSET, MIN_STORE_TIME, END_STORE_TIME = range(4)

_SYS_FLAG = HEAD.offset_of("sys_flag")
_PHYSICAL_OFFSET = HEAD.offset_of("physical_offset")
_QUEUE_ID = HEAD.offset_of("queue_id")
_STORE_TIME = -STORED.size
_HEAD_SIZE, _TAIL_SIZE = HEAD.size, TAIL.size
_NO_LIMIT = np.iinfo(np.int64).max
_FIXED_NEED = 64  # bytes that a record may need besides its topic and properties: hosts
_ENTRY_SIZE = 4  # bytes of the smallest property, about
_KEY_SIZE = 2  # of the smallest key and its space


@compiled
def _is_topic(window, position, length, topics, topic_offsets):
    for number in range(len(topic_offsets) - 1):
        begin = topic_offsets[number]
        if topic_offsets[number + 1] - begin == length:
            same = True
            for at in range(length):
                if window[position + at] != topics[begin + at]:
                    same = False
                    break
            if same:
                return True
    return False


@compiled
def _keep_wanted(window, parts, first, count, choice):
    """Close up the records that are wanted; how many there are."""
    kept = first
    for row in range(first, first + count):
        start = parts[h.START, row]
        offset = load_be_i64(window, start + _PHYSICAL_OFFSET)
        if offset < choice.bounds[MIN_OFFSET] or offset >= choice.bounds[END_OFFSET]:
            continue
        time = load_be_i64(window, parts[h.STORE_HOST, row] + _STORE_TIME)
        if time < choice.bounds[MIN_STORE_TIME] or time >= choice.bounds[END_STORE_TIME]:
            continue
        if len(choice.queue_ids) > 0:
            queue_id = load_be_i32(window, start + _QUEUE_ID)
            found = False
            for number in range(len(choice.queue_ids)):
                found |= choice.queue_ids[number] == queue_id
            if not found:
                continue
        if len(choice.topic_offsets) > 1 and not _is_topic(
            window, parts[h.TOPIC, row], parts[h.TOPIC_LENGTH, row], choice.topics, choice.topic_offsets
        ):
            continue
        if kept != row:
            for part in range(h.PART_COUNT):
                parts[part, kept] = parts[part, row]
        kept += 1
    return kept - first


@compiled
def _text_left(interner):
    free = len(interner.texts) - PADDING - interner.counts[TEXT_END]
    return min(free, len(interner.starts) - 1 - interner.counts[DISTINCT])


@compiled
def _fitting(parts, first, count, wanted, interners, text):
    """How many of these records all outputs are sure to have room for."""
    room = np.int64(_NO_LIMIT)
    if wanted & b.WANT_ENTRIES:
        room = min(room, _ENTRY_SIZE * (len(text.names) - text.used[b.ENTRIES]))
        room = min(room, len(text.values) - OVERWRITE - text.used[b.VALUE_BYTES])
    if wanted & b.WANT_UNIQUE_KEY:
        room = min(room, len(text.unique) - OVERWRITE - text.used[b.UNIQUE_BYTES])
    if wanted & b.WANT_KEYS:
        room = min(room, _KEY_SIZE * (len(text.key_offsets) - 1 - text.used[b.KEY_ITEMS]))
        room = min(room, len(text.keys) - OVERWRITE - text.used[b.KEY_BYTES])
    room = min(room, _text_left(interners[0]), _text_left(interners[1]), _text_left(interners[2]))
    room = min(room, _text_left(interners[3]), _text_left(interners[4]))
    for row in range(first, first + count):
        room -= parts[h.TOPIC_LENGTH, row] + parts[h.PROPERTIES_LENGTH, row] + _FIXED_NEED
        if room < 0:
            return row - first
    return count


@compiled
def _decode(window, parts, first, count, plan, interners, scratch, out, text):
    """Decode these records into the rows with the same numbers."""
    names, topics, tags, born_hosts, store_hosts = interners
    wanted, seed = plan.wanted, plan.seed
    end = first + count
    for column in range(len(plan.fields32)):
        base, offset = plan.fields32[column, FIELD_BASE], plan.fields32[column, FIELD_OFFSET]
        gather_i32(window, parts[base, first:end], offset, out.numbers32[column, first:end])
    for column in range(len(plan.fields64)):
        base, offset = plan.fields64[column, FIELD_BASE], plan.fields64[column, FIELD_OFFSET]
        gather_i64(window, parts[base, first:end], offset, out.numbers64[column, first:end])
    flags = out.sys_flags[first:end]
    gather_i32(window, parts[h.START, first:end], _SYS_FLAG, flags)
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
            window, parts[h.STORE_HOST, first:end], 0, flags, STORE_HOST_V6, seed, store_hosts,
            out.codes[b.STORE_HOST, first:end],
        )  # fmt: skip
    if wanted & b.WANT_MESSAGE_ID:
        out.message_id_size[0] = write_message_ids(
            window, parts, first, count, out.sys_flags, STORE_HOST_V6, _PHYSICAL_OFFSET, out.message_id_size[0],
            out.message_id_offsets, out.message_ids,
        )  # fmt: skip
    if wanted & b.WANT_TEXT:
        split_properties(window, parts, first, count, seed, wanted, names, tags, scratch, out.codes[b.TAGS], text)


@compiled
def decode_records(window, parts, plan, interners, scratch, out, text):
    """Decode records that are found already; how many there was room for."""
    count = _fitting(parts, 0, parts.shape[1], plan.wanted, interners, text)
    _decode(window, parts, 0, count, plan, interners, scratch, out, text)
    return count


@compiled
def read_batch(
    window, length, origin, limit, segment_end, file_end, max_record, verify, state, parts, faults, choice, plan,
    interners, scratch, out, text,
):  # fmt: skip
    """Hop and decode until `state[STOP]`; see `hop` for what is not said here.

    Args:
        window: see `hop`.
        length: see `hop`.
        origin: see `hop`.
        limit: see `hop`.
        segment_end: see `hop`.
        file_end: see `hop`.
        max_record: see `hop`.
        verify: see `hop`.
        state: see `hop`; the caller empties RECORDS and FAULTS.
        parts: int64[PART_COUNT, ROWS + 1] out.
        faults: int64[room, 3] out.
        choice: which records are wanted.
        plan: which columns are.
        interners: of names, topics, tags, born hosts, store hosts.
        scratch: see `buffers.Scratch`.
        out: see `buffers.Columns`.
        text: see `buffers.Text`.
    """
    rows = np.int64(0)
    room = parts.shape[1] - 1
    state[h.STOP] = h.STOP_ROOM
    while state[h.STOP] == h.STOP_ROOM and rows < room and state[h.FAULTS] < faults.shape[0]:
        state[h.RECORDS] = 0
        chunk = parts[:, rows : rows + min(CHUNK, room - rows) + 1]
        h.hop(window, length, origin, limit, segment_end, file_end, max_record, verify, state, chunk, faults)
        found = state[h.RECORDS]
        if choice.chooses:
            found = _keep_wanted(window, parts, rows, found, choice)
        fitting = _fitting(parts, rows, found, plan.wanted, interners, text)
        _decode(window, parts, rows, fitting, plan, interners, scratch, out, text)
        rows += fitting
        if fitting < found:
            # Take the others again, with whatever was found behind them.
            state[h.POSITION] = origin + parts[h.START, rows]
            while state[h.FAULTS] > 0 and faults[state[h.FAULTS] - 1, 0] >= state[h.POSITION]:
                state[h.FAULTS] -= 1
            state[h.BAD_START] = -1
            state[h.STOP] = h.STOP_ROOM
            break
    state[h.RECORDS] = rows
