"""Compiled extraction of index data from records, while they are in the processor's cache.

Java's `String.hashCode` is 31 * h + unit over UTF-16 units; in arithmetic modulo 2^64 its low 32 bits are the same. A
record in BoltMQ's dialect has FNV-1 as the code of its tags, and no keys, because BoltMQ's index cannot be searched.
Records that the kernel does not handle (text that is not UTF-8, numbers in an unusual form, messages for several
queues) are listed as irregular, for Python. All called functions that are not in `reading.kernel` are in this file,
because numba checks only the time of this file before it uses compiled code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from commitlake.connectors.formats.rocketmq.kernel.properties import GRAMMAR
from commitlake.connectors.formats.rocketmq.kernel.records import COMMITLOG, STORE_HOST
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import (
    PADDING,
    load_be_i32,
    load_be_i64,
    load_le_u64,
)
from commitlake.connectors.reading.kernel.properties import make_property_cursor, next_property_entry
from commitlake.connectors.reading.kernel.strings import DISTINCT, TEXT_END, intern_span
from commitlake.connectors.reading.kernel.utf8 import is_utf8
from commitlake.schemas.layouts.boltmq.dialect import Magic
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.batchconsumequeue import INNER_NUM
from commitlake.schemas.layouts.rocketmq.commitlog import HEAD, STORED
from commitlake.schemas.layouts.rocketmq.key_hashes import FNV_64_BASIS, FNV_64_PRIME
from commitlake.schemas.layouts.rocketmq.light_queues import MULTI_DISPATCH
from commitlake.schemas.layouts.rocketmq.sysflag import TRANSACTION_MASK, TransactionType
from commitlake.schemas.layouts.rocketmq.topics import BOLTMQ_SCHEDULE_TOPIC, SCHEDULE_TOPIC

PHYSICAL_OFFSET, QUEUE_OFFSET, STORE_TIMESTAMP, TAGS_CODE = range(4)
"""Rows of `longs`."""
SIZE, TOPIC, QUEUE_ID, SYS_FLAG, DELAY_LEVEL, BATCH_SIZE, TAGS_HASH, KEY_END = range(8)
"""Rows of `ints`. TAGS_HASH is -1 if there are no tags; KEY_END is the end of a record's hashes in `key_hashes`."""
ROWS, KEYS, ODD = range(3)
"""Positions in `used`."""
PLAIN, SCHEDULE, BOLTMQ_SCHEDULE, NOT_TEXT = range(4)
"""Kinds of topics; the schedule topic of one dialect is a normal topic in the other."""

CHUNK = 256
"""Number of records that are located before they are examined: few enough to stay in the cache."""
_SYS_FLAG, _QUEUE_ID = HEAD.offset_of("sys_flag"), HEAD.offset_of("queue_id")
_AT_OFFSET, _AT_QUEUE_OFFSET = HEAD.offset_of("physical_offset"), HEAD.offset_of("queue_offset")
_STORE_TIME = -STORED.size
_ROLLBACK = int(TransactionType.ROLLBACK)
_SPACE = ord(props.KEY_SEPARATOR)
_HASH_SIGN = np.uint64(ord("#"))
_SCHEDULE_LENGTH, _BOLTMQ_SCHEDULE_LENGTH = len(SCHEDULE_TOPIC), len(BOLTMQ_SCHEDULE_TOPIC)
_BOLTMQ = int(Magic.BOLTMQ)
_AT_MAGIC = HEAD.offset_of("magic")
_FNV_BASIS, _FNV_PRIME = np.uint64(FNV_64_BASIS), np.uint64(FNV_64_PRIME)


def _load_first_eight_bytes(text: str) -> np.uint64:
    """Return the first eight bytes of a name, or all of a shorter one, as a 64-bit word."""
    return np.uint64(int.from_bytes(text.encode()[:8], "little"))


_TAGS, _KEYS, _UNIQ_KEY, _DELAY = (
    _load_first_eight_bytes(props.TAGS),
    _load_first_eight_bytes(props.KEYS),
    _load_first_eight_bytes(props.UNIQ_KEY),
    _load_first_eight_bytes(props.DELAY),
)
_MULTI, _INNER, _SCHEDULE = (
    _load_first_eight_bytes(MULTI_DISPATCH),
    _load_first_eight_bytes(INNER_NUM),
    _load_first_eight_bytes(SCHEDULE_TOPIC),
)
_MULTI_LENGTH, _INNER_LENGTH = len(MULTI_DISPATCH), len(INNER_NUM)
_FOUR_BYTES, _FIVE_BYTES = np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFFFF)
_P1, _P2, _P3, _P4 = (np.uint64(31**power) for power in range(1, 5))
_LOW = np.uint64(0xFFFFFFFF)


class OutputArrays(NamedTuple):
    """Arrays that receive the data of located records from which indexes are built.

    Attributes:
        used: int64[3], see ROWS.
        longs: int64[4, rows].
        ints: int32[8, rows].
        key_hashes: int32, the hashes of UNIQ_KEY and KEYS of all records, in the order in which brokers enter them.
        tags_key: the bytes of `T#`, the prefix of a tag's key.
        irregular: int64[6, rows]: row, position and length of topic and of properties, and magic, for Python.
        topic_hashes: uint64, for each topic the hash state after `topic#`.
        topic_kinds: uint8, see PLAIN.
    """

    used: Array
    longs: Array
    ints: Array
    key_hashes: Array
    tags_key: Array
    irregular: Array
    topic_hashes: Array
    topic_kinds: Array


@compiled
def hash_text(window: Array, position: Any, length: Any, start_hash: Any) -> Any:
    """Continue Java's string hash over well-formed UTF-8 text; only the low 32 bits of the result are valid."""
    end = position + length
    while end - position >= 4:
        first, second = np.uint64(window[position]), np.uint64(window[position + 1])
        third, fourth = np.uint64(window[position + 2]), np.uint64(window[position + 3])
        # One test for four bytes. Their terms do not depend on each other, so the processor computes them side by side,
        # which the recurrence of `hashCode` does not allow.
        if (first | second | third | fourth) >= np.uint64(128):
            break
        start_hash = start_hash * _P4 + (first * _P3 + second * _P2 + third * _P1 + fourth)
        position += 4
    while position < end:
        lead = np.uint64(window[position])
        if lead < np.uint64(0x80):
            start_hash = start_hash * _P1 + lead
            position += 1
            continue
        point = np.uint64(window[position + 1]) & np.uint64(0x3F)
        if lead < np.uint64(0xE0):
            start_hash = start_hash * _P1 + (((lead & np.uint64(0x1F)) << np.uint64(6)) | point)
            position += 2
            continue
        point = (point << np.uint64(6)) | (np.uint64(window[position + 2]) & np.uint64(0x3F))
        if lead < np.uint64(0xF0):
            start_hash = start_hash * _P1 + (((lead & np.uint64(0x0F)) << np.uint64(12)) | point)
            position += 3
            continue
        point = (point << np.uint64(6)) | (np.uint64(window[position + 3]) & np.uint64(0x3F))
        # Java hashes UTF-16 units, and a character outside the basic plane has two of them.
        point = (((lead & np.uint64(0x07)) << np.uint64(18)) | point) - np.uint64(0x10000)
        start_hash = start_hash * _P1 + (np.uint64(0xD800) + (point >> np.uint64(10)))
        start_hash = start_hash * _P1 + (np.uint64(0xDC00) + (point & np.uint64(0x3FF)))
        position += 4
    return start_hash


@compiled
def signed_hash(value: Any) -> Any:
    """Return the low 32 bits of a hash as a signed integer, like Java's int."""
    low = np.int64(value & _LOW)
    return low - (np.int64(1) << 32) if low >= (np.int64(1) << 31) else low


@compiled
def index_hash(value: Any) -> Any:
    """Return a hash as IndexFiles store it: its absolute value, or 0 for the smallest int."""
    number = abs(signed_hash(value))
    return np.int64(0) if number >= (np.int64(1) << 31) else number


@compiled
def fnv1_64(window: Array, position: Any, length: Any) -> Any:
    """Return the FNV-1 hash of bytes, as Go's int64."""
    value = _FNV_BASIS
    for at in range(position, position + length):
        value = (value * _FNV_PRIME) ^ np.uint64(window[at])
    return np.int64(value)


@compiled
def _parse_digits(window: Array, position: Any, length: int) -> Any:
    """Return the number that a text of one to nine digits states; -1 for a longer text, or one with other bytes."""
    # Ten digits may exceed an int. Python then decides by the rules of Integer.parseInt.
    if length > 9:
        return np.int64(-1)
    value = np.int64(0)
    for at in range(position, position + length):
        digit = np.int64(window[at]) - 48
        if digit < 0 or digit > 9:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@compiled
def _classify_topic(window: Array, position: int, length: int) -> Any:
    if not is_utf8(window, position, length):
        return NOT_TEXT
    # Eight bytes and the length are enough here: a topic that merely looks like one of the two is left alone later, by
    # `_set_delivery_times`, which compares whole names.
    if length >= _BOLTMQ_SCHEDULE_LENGTH and load_le_u64(window, position) == _SCHEDULE:
        if length == _SCHEDULE_LENGTH:
            return SCHEDULE
        if length == _BOLTMQ_SCHEDULE_LENGTH:
            return BOLTMQ_SCHEDULE
    return PLAIN


@compiled
def _write_record_data(
    window: Array, record_parts: Array, first_record: Any, record_count: int, seed: Any, topic_interner: Any, out: Any
) -> Any:
    """Write the index data of located records to the outputs, and return the number of records that fit."""
    counts, table, starts, texts = topic_interner
    used, longs, ints, key_hashes, tags_key, irregular, topic_hashes, topic_kinds = out
    row, key = used[ROWS], used[KEYS]
    likely = np.int64(-1)
    taken = 0
    for number in range(first_record, first_record + record_count):
        properties, properties_length = record_parts[h.PROPERTIES, number], record_parts[h.PROPERTIES_LENGTH, number]
        end = properties + properties_length
        topic, topic_length = record_parts[h.TOPIC, number], record_parts[h.TOPIC_LENGTH, number]
        # Checked before anything is written. A key takes two bytes with its space, so half the properties' size bounds
        # the number of hashes.
        if (
            row >= longs.shape[1]
            or key + properties_length // 2 + 2 > len(key_hashes)
            or counts[TEXT_END] + topic_length + PADDING > len(texts)
        ):
            break
        start = record_parts[h.START, number]
        known = counts[DISTINCT]
        likely = intern_span(window, topic, topic_length, seed, likely, counts, table, starts, texts)
        # Each topic is examined once. The hash of `topic#`, with which every index key of the topic begins, is kept
        # with it.
        if likely == known:
            kind = _classify_topic(window, topic, topic_length)
            topic_kinds[likely] = kind
            if kind != NOT_TEXT:
                topic_hashes[likely] = hash_text(window, topic, topic_length, np.uint64(0)) * _P1 + _HASH_SIGN
        kind = topic_kinds[likely]
        magic = load_be_i32(window, start + _AT_MAGIC)
        waits = kind == (BOLTMQ_SCHEDULE if magic == _BOLTMQ else SCHEDULE)
        sys_flag = load_be_i32(window, start + _SYS_FLAG)
        longs[PHYSICAL_OFFSET, row] = load_be_i64(window, start + _AT_OFFSET)
        longs[QUEUE_OFFSET, row] = load_be_i64(window, start + _AT_QUEUE_OFFSET)
        longs[STORE_TIMESTAMP, row] = load_be_i64(window, record_parts[STORE_HOST, number] + _STORE_TIME)
        ints[SIZE, row] = load_be_i32(window, start)
        ints[TOPIC, row] = likely
        ints[QUEUE_ID, row] = load_be_i32(window, start + _QUEUE_ID)
        ints[SYS_FLAG, row] = sys_flag
        tags, tags_length = np.int64(0), np.int64(0)
        keys, keys_length = np.int64(0), np.int64(0)
        unique, unique_length = np.int64(0), np.int64(0)
        level, batch = np.int64(0), np.int64(0)
        is_irregular = kind == NOT_TEXT
        cursor = make_property_cursor(properties)
        while True:
            entry, cursor = next_property_entry(GRAMMAR, window, end, cursor)
            if not entry.is_there:
                break
            begin, separator = entry.begin, entry.separator
            # Unlike the reader's columns, a repeated name takes its last value here, as in the map from which the
            # broker makes its index.
            if separator > begin and separator < entry.end - 1:
                value, length = separator + 1, entry.end - separator - 1
                name_length = separator - begin
                word = load_le_u64(window, begin)
                if name_length == 4:
                    if word & _FOUR_BYTES == _TAGS:
                        tags, tags_length = value, length
                    elif word & _FOUR_BYTES == _KEYS:
                        keys, keys_length = value, length
                elif name_length == 8:
                    if word == _UNIQ_KEY:
                        unique, unique_length = value, length
                elif name_length == 5:
                    if word & _FIVE_BYTES == _DELAY and waits:
                        level = _parse_digits(window, value, length)
                        is_irregular |= level < 0
                elif name_length == _INNER_LENGTH:
                    if word == _INNER:
                        batch = _parse_digits(window, value, length)
                        is_irregular |= batch < 0
                elif name_length == _MULTI_LENGTH and word == _MULTI:
                    is_irregular = True
        is_irregular |= cursor.others != 0 and not is_utf8(window, properties, properties_length)
        code = np.int64(0)
        tags_hash = np.int64(-1)
        # Only located here: Python parses the record while its window is still open.
        if is_irregular:
            at = used[ODD]
            irregular[0, at], irregular[1, at], irregular[2, at] = row, topic, topic_length
            irregular[3, at], irregular[4, at], irregular[5, at] = properties, properties_length, magic
            used[ODD] = at + 1
        elif magic == _BOLTMQ:
            if tags_length > 0:
                code = fnv1_64(window, tags, tags_length)
        else:
            topic_hash = topic_hashes[likely]
            if tags_length > 0:
                code = signed_hash(hash_text(window, tags, tags_length, np.uint64(0)))
            # A broker enters no keys of a rollback (IndexService.buildIndex).
            if sys_flag & TRANSACTION_MASK != _ROLLBACK:
                if unique_length > 0:
                    key_hashes[key] = index_hash(hash_text(window, unique, unique_length, topic_hash))
                    key += 1
                keys_end = keys + keys_length
                while keys < keys_end:
                    at = keys
                    while at < keys_end and window[at] != _SPACE:
                        at += 1
                    if at > keys:
                        key_hashes[key] = index_hash(hash_text(window, keys, at - keys, topic_hash))
                        key += 1
                    keys = at + 1
                if tags_length > 0:
                    prefixed = hash_text(tags_key, 0, len(tags_key), topic_hash)
                    tags_hash = index_hash(hash_text(window, tags, tags_length, prefixed))
        longs[TAGS_CODE, row] = code
        ints[DELAY_LEVEL, row] = level
        ints[BATCH_SIZE, row] = batch
        ints[TAGS_HASH, row] = tags_hash
        ints[KEY_END, row] = key
        row += 1
        taken += 1
    used[ROWS], used[KEYS] = row, key
    return taken


@compiled
def read_index_data(
    window: Array, window_length: int, window_offset: int, range_end: int, segment_end: int, file_end: int,
    max_record_bytes: int,
    verifies_crc: bool, state: Array, record_parts: Array, faults: Array, seed: Any, topic_interner: Any, out: Any,
) -> None:  # fmt: skip
    """Locate records until `state[STOP]` is set, and write the data from which indexes are built for each to `out`.

    Args:
        window: see `walk_records`.
        window_length: see `walk_records`.
        window_offset: see `walk_records`.
        range_end: see `walk_records`.
        segment_end: see `walk_records`.
        file_end: see `walk_records`.
        max_record_bytes: see `walk_records`.
        verifies_crc: see `walk_records`.
        state: see `walk_records`.
        record_parts: int64[COMMITLOG_PART_COUNT, room + 1] out.
        faults: int64[room, 3] out.
        seed: seed of the hashes that distinguish topics.
        topic_interner: the interner of topics.
        out: an `OutputArrays`, filled from `used` on.
    """
    rows = np.int64(0)
    room = record_parts.shape[1] - 1
    state[h.STOP] = h.STOP_ROOM
    state[h.FAULTS] = 0
    while state[h.STOP] == h.STOP_ROOM and rows < room and state[h.FAULTS] < faults.shape[0]:
        state[h.RECORDS] = 0
        chunk = record_parts[:, rows : rows + min(CHUNK, room - rows) + 1]
        h.walk_records(
            COMMITLOG,
            window,
            window_length,
            window_offset,
            range_end,
            segment_end,
            file_end,
            max_record_bytes,
            verifies_crc,
            state,
            chunk,
            faults,
        )
        found = state[h.RECORDS]
        taken = _write_record_data(window, record_parts, rows, found, seed, topic_interner, out)
        rows += taken
        # The records after this one are located but not taken. The next call finds them again, with an empty output.
        if taken < found:
            h.discard_findings_after(window_offset + record_parts[h.START, rows], state, faults)
            break
    state[h.RECORDS] = rows
