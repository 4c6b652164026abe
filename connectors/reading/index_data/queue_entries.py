"""Queue entries that a chunk of the log yields, grouped by queue."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.queues import QueueEntries
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.index_data.queue_grouping import number_keys, sort_rows_by_group
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
    found = number_keys(keys, table, distinct, numbers)
    order, starts = np.empty(count, np.int64), np.zeros(found + 1, np.int64)
    sort_rows_by_group(numbers, starts, order)
    return order, starts, distinct[:found]
