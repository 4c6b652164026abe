"""Counts the messages behind each place in a queue, batch by batch, in any order of batches.

A cursor is a place in a queue and a choice of messages: those at or after its offset that are wanted are behind it. One
pass over the messages serves any number of cursors; memory is bounded by cursors and queues, not by messages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.pipelines.lag.wanted import ALL, Wanted

COLUMNS = ("topic", "queue_id", "queue_offset", "size", "store_timestamp")
"""What every batch has; `tags` and `properties` where a choice needs them."""


class Queue(NamedTuple):
    """A queue of a store."""

    broker: str
    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a queue.

    Attributes:
        queue: Which queue.
        offset: Messages from here on count.
        wanted: Which of them.
    """

    queue: Queue
    offset: int
    wanted: Wanted = ALL


@dataclass(slots=True)
class Behind:
    """What is behind a cursor.

    Attributes:
        messages: How many.
        bytes: Of their records.
        next_offset: The first one; None where there is none.
        next_time_ms: When that was stored, ms since 1970.
    """

    messages: int = 0
    bytes: int = 0
    next_offset: int | None = None
    next_time_ms: int | None = None


class BacklogCounter:
    """Counts.

    Args:
        cursors: The places; equal ones are counted once.
        until_ms: Messages that were stored later do not count, ms since 1970.
    """

    def __init__(self, cursors: Iterable[Cursor], until_ms: int | None = None) -> None:
        self.behind: dict[Cursor, Behind] = {cursor: Behind() for cursor in cursors}
        self._until_ms = until_ms
        self._of_queue: dict[Queue, list[Cursor]] = defaultdict(list)
        for cursor in self.behind:
            self._of_queue[cursor.queue].append(cursor)

    def add(self, broker: str, batch: pa.RecordBatch) -> None:
        """Count a batch of a store's messages."""
        if self._until_ms is not None:
            times = milliseconds(batch)
            batch = batch.filter(pa.array(times <= self._until_ms))
        if not batch.num_rows:
            return
        offsets = batch.column("queue_offset").to_numpy(zero_copy_only=False)
        sizes = batch.column("size").to_numpy(zero_copy_only=False)
        times = milliseconds(batch)
        chosen: dict[Wanted, Array] = {}
        for queue, rows in rows_by_queue(broker, batch):
            for cursor in self._of_queue.get(queue, ()):
                wanted = cursor.wanted
                if wanted not in chosen:
                    chosen[wanted] = wanted.select(batch)
                here = rows[(offsets[rows] >= cursor.offset) & chosen[wanted][rows]]
                if len(here):
                    self._count(self.behind[cursor], offsets[here], sizes[here], times[here])

    def _count(self, behind: Behind, offsets: Array, sizes: Array, times: Array) -> None:
        behind.messages += len(offsets)
        behind.bytes += int(sizes.sum(dtype=np.int64))
        first = int(offsets.argmin())
        if behind.next_offset is None or offsets[first] < behind.next_offset:
            behind.next_offset, behind.next_time_ms = int(offsets[first]), int(times[first])


def milliseconds(batch: pa.RecordBatch) -> Array:
    """Return the store times, ms since 1970."""
    column = batch.column("store_timestamp")
    times = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False))


def rows_by_queue(broker: str, batch: pa.RecordBatch) -> Iterable[tuple[Queue, Array]]:
    """Yield each queue of a batch with the numbers of its rows."""
    topics = batch.column("topic")
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    names = topics.dictionary.to_pylist()
    queue_ids = batch.column("queue_id").to_numpy(zero_copy_only=False).astype(np.int64)
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32 | queue_ids & 0xFFFFFFFF
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    for code, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        queue_id = code & 0xFFFFFFFF
        yield Queue(broker, names[code >> 32], queue_id - (1 << 32) if queue_id >> 31 else queue_id), rows
