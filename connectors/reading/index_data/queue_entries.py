"""Queue entries that a chunk of the log yields, grouped by queue, in which they stay in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.schemas.layouts.rocketmq.light_queues import LIGHT_QUEUE_ID

_QUEUE_BITS = 32


def group_entries_by_queue(index_data: IndexData, *, includes_light_queues: bool = True) -> Iterator[QueueEntries]:
    """Yield, for each queue, its entries for the records of a chunk; some records have no entry.

    An inner batch has one entry; `IndexData.batch_mask` says in which kind of queue it is.

    Args:
        index_data: the chunk.
        includes_light_queues: True if a record that names light queues also has an entry in each of them.
    """
    names = list(index_data.topics)
    rows = np.arange(index_data.record_count)
    queued = index_data.queued_mask
    topic, queue_id, queue_offset = index_data.topic, index_data.queue_id, index_data.queue_offset
    # Usually all records are queued, and the columns are used without a copy.
    if not queued.all():
        rows = rows[queued]
        topic, queue_id, queue_offset = topic[rows], queue_id[rows], queue_offset[rows]
    if index_data.multi_dispatch and includes_light_queues:
        extra = [(row, name, number) for row, others in index_data.multi_dispatch.items() for name, number in others]
        extra = [each for each in extra if queued[each[0]]]
        numbers = {name: len(names) + place for place, name in enumerate(dict.fromkeys(name for _, name, _ in extra))}
        names += numbers
        rows = np.concatenate([rows, np.array([row for row, _, _ in extra], np.int64)])
        topic = np.concatenate([topic, np.array([numbers[name] for _, name, _ in extra], np.int32)])
        queue_id = np.concatenate([queue_id, np.full(len(extra), LIGHT_QUEUE_ID, np.int32)])
        queue_offset = np.concatenate([queue_offset, np.array([number for _, _, number in extra], np.int64)])
        # Entries of a queue must stay in the order of the log, which decides their order in the file.
        by_place = np.argsort(rows, kind="stable")
        rows, topic, queue_id = rows[by_place], topic[by_place], queue_id[by_place]
        queue_offset = queue_offset[by_place]
    # One number for topic and queue id, so that grouping compares numbers only.
    keys = (topic.astype(np.int64) << _QUEUE_BITS) | (queue_id.astype(np.int64) & 0xFFFFFFFF)
    order, starts, distinct = _group_rows_by_key(keys)
    for number, (begin, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        chosen = order[begin:end]
        taken = rows[chosen]
        code, number_in_topic = int(distinct[number]) >> _QUEUE_BITS, int(queue_id[chosen[0]])
        yield QueueEntries(
            topic=names[code],
            queue_id=number_in_topic,
            queue_offset=queue_offset[chosen],
            physical_offset=index_data.physical_offset[taken],
            size=index_data.size[taken],
            tags_code=index_data.tags_code[taken],
            store_timestamp=index_data.store_timestamp[taken],
            batch_size=index_data.batch_size[taken],
        )


def _group_rows_by_key(keys: Array) -> tuple[Array, Array, Array]:
    """Group rows by key; return the rows in the order of the groups, where each group starts, and each group's key."""
    count = len(keys)
    distinct, numbers = np.empty(count, np.int64), np.empty(count, np.int32)
    table = np.zeros(1 << max(4, (2 * count).bit_length()), np.int32)
    found = _number_keys(keys, table, distinct, numbers)
    order, starts = np.empty(count, np.int64), np.zeros(found + 1, np.int64)
    _sort_rows_by_group(numbers, starts, order)
    return order, starts, distinct[:found]


@compiled
def _number_keys(keys: Array, hash_table: Array, distinct_keys: Array, out_key_numbers: Array) -> int:
    """Number the distinct keys in order of appearance, write each row's number, and return how many numbers there are.

    Args:
        keys: int64.
        hash_table: int32 zeros, a power of two long and at least twice as long as `keys`.
        distinct_keys: int64 out, with room for every key.
        out_key_numbers: int32 out, each key's number.
    """
    mask = np.uint64(len(hash_table) - 1)
    count = 0
    likely = -1
    for row in range(len(keys)):
        key = keys[row]
        if likely >= 0 and distinct_keys[likely] == key:
            out_key_numbers[row] = likely
            continue
        word = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
        slot = (word >> np.uint64(29)) & mask
        while True:
            found = hash_table[slot] - 1
            if found < 0:
                found = count
                distinct_keys[count] = key
                count += 1
                hash_table[slot] = count
                break
            if distinct_keys[found] == key:
                break
            slot = (slot + np.uint64(1)) & mask
        likely = found
        out_key_numbers[row] = found
    return count


@compiled
def _sort_rows_by_group(group_numbers: Array, group_starts: Array, sorted_rows: Array) -> None:
    """Sort rows by group number with a stable sort, into the output array `sorted_rows`.

    Args:
        group_numbers: int32, from 0 to len(starts) - 2.
        group_starts: int64 zeros; out, start of each number's rows in `sorted_rows`, and the end of the last.
        sorted_rows: int64 out, the rows.
    """
    for row in range(len(group_numbers)):
        group_starts[group_numbers[row] + 1] += 1
    for number in range(1, len(group_starts)):
        group_starts[number] += group_starts[number - 1]
    for row in range(len(group_numbers)):
        sorted_rows[group_starts[group_numbers[row]]] = row
        group_starts[group_numbers[row]] += 1
    for number in range(len(group_starts) - 1, 0, -1):
        group_starts[number] = group_starts[number - 1]
    group_starts[0] = 0
