"""Messages of a store's own log, for measuring lag of a store that is not archived.

Where all messages of a topic count, the entries of its queues are counted. The log itself is then read only in segments
that can hold newer messages, and where the queues have gaps; see `reading.planning`. Everything else is read once,
however many counts use it. If an entry does not match the log, everything is read from the log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.log_format.indexes import IndexAnswer
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.damage import CORRUPT_RECORD
from commitlake.connectors.reading.errors import IndexMismatchError
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import merge_in_log_order, plan_entries
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.single_records import LogRecords
from commitlake.connectors.reading.snapshots import StoreRange, take_snapshot
from commitlake.connectors.reading.stores import Store
from commitlake.pipelines.lag.backlog_counting import (
    COLUMNS,
    BacklogCounter,
    Queue,
    integer_column,
    milliseconds_column,
    rows_by_queue,
)
from commitlake.pipelines.lag.queue_offset_spans import BODY, CountLimits, MessageCounter, QueueSpan, SpanFinder
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.safe_store_files import UnsafeFileError, folders_in
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.times import epoch_ms


class StoreMessages:
    """Messages in one store's own files, as they are when the object is created.

    Args:
        store: From `find_stores`.
        use_indexes: True to count entries of the broker's queues, and to find records by them.

    Attributes:
        damaged: Number of ranges that were read and hold no intact message.
    """

    has_deleted = False

    def __init__(self, store: Store, *, use_indexes: bool = True) -> None:
        self._store = store
        self._use_indexes = use_indexes
        self._range: StoreRange = take_snapshot([store]).ranges[store.broker]
        self._records = LogRecords(store.segments, store.format)
        self.damaged = 0

    def measure_queues(
        self, times: CountLimits, topics: Collection[str], counters: Sequence[MessageCounter]
    ) -> dict[Queue, QueueSpan]:
        """Pass each counter the messages that it needs, and return the first and end offset of each queue.

        Raises:
            IndexMismatchError: An entry of a queue does not match the log.
        """
        until_ms = None if times.until is None else epoch_ms(times.until)
        spans = self._read_log(until_ms, topics, counters)
        if spans.restart_offsets:
            backlogs = [count for count in counters if isinstance(count, BacklogCounter)]
            for backlog in backlogs:
                backlog.reset_counts(spans.restart_offsets)
            self._read_log(until_ms, topics, backlogs)
        for count in counters:
            if isinstance(count, BacklogCounter):
                count.set_next_message_times(self._store_time_of)
                count.set_preceding_message_times(self._store_time_if_readable)
        return {queue: span for queue, span in spans.queue_spans.items() if queue.topic in topics}

    def _read_log(
        self, until_ms: int | None, topics: Collection[str], counters: Sequence[MessageCounter]
    ) -> SpanFinder:
        """Read the log once, and pass all counters the messages that they need."""
        spans = SpanFinder(self._is_queue_deleted)
        damaged = 0
        by_count = {queue.topic for count in counters for queue in count.starts}
        backlogs = [count for count in counters if isinstance(count, BacklogCounter)]
        wanted = {*topics} | by_count
        if not wanted:
            return spans
        options = ReadOptions(path=self._store.root, mode=Mode.PERMISSIVE, use_indexes=self._use_indexes)
        filters = Filters(topics=frozenset(wanted))
        by_entry = {topic for topic in wanted if all(_can_count_index_entries(count, topic) for count in counters)}
        # Entries have no time, so messages after one of these times must not be counted by their entries.
        limits = [limit for limit in (until_ms, *(count.until_ms for count in counters)) if limit is not None]
        names = dict.fromkeys([*COLUMNS, *(name for count in counters for name in count.columns if name != BODY)])
        schema = arrow_schema(SOURCE.select_columns([*names, CORRUPT_RECORD]))
        request = replace(Request.of(options, filters, schema), keeps_bad_ranges=True)
        for plan in plan_entries(self._store, self._range, options, filters, by_entry, min(limits, default=None)):
            for part in merge_in_log_order(plan):
                if isinstance(part, IndexAnswer):
                    for queue, offsets, sizes, physical in self._entries_by_queue(part):
                        spans.add_messages(queue, offsets, physical)
                        for backlog in backlogs:
                            backlog.add_queue(queue)
                            backlog.count_index_entries(queue, offsets, sizes, physical)
                    continue
                for read in read_split(part, request):
                    batch, bad = _split_off_damage(read)
                    damaged += bad
                    for queue in self._add_batch_to_spans(spans, batch, until_ms):
                        for backlog in backlogs:
                            backlog.add_queue(queue)
                    for count in counters:
                        count.add_batch(self._store.broker, self._add_bodies_if_needed(batch, count))
        self.damaged = max(self.damaged, damaged)  # the same ranges may be read again
        return spans

    def _is_queue_deleted(self, queue: Queue) -> bool:
        """Return whether a queue no longer has a folder, although other queues of its topic have one."""
        folder = Path(self._store.root).parent / self._store.format.queues.layout.folder
        try:
            numbers_there = (
                folders_in(folder / queue.topic, trusted_root=folder) if queue.topic in folders_in(folder) else []
            )
        except UnsafeFileError:
            return False
        return bool(numbers_there) and str(queue.queue_id) not in numbers_there

    def _add_batch_to_spans(self, span_finder: SpanFinder, batch: pa.RecordBatch, until_ms: int | None) -> list[Queue]:
        """Add the messages of a batch to `span_finder`, and return the queues in the batch."""
        offsets, physical = integer_column(batch, "queue_offset"), integer_column(batch, "physical_offset")
        is_early = np.ones(batch.num_rows, bool) if until_ms is None else milliseconds_column(batch) <= until_ms
        found = []
        for queue, rows in rows_by_queue(self._store.broker, batch):
            here = rows[is_early[rows]]
            span_finder.add_messages(queue, offsets[here], physical[here])
            found.append(queue)
        return found

    def _entries_by_queue(self, entries: IndexAnswer) -> Iterator[tuple[Queue, Array, Array, Array]]:
        """Yield each queue with the queue offsets, sizes and physical offsets in its ConsumeQueue entries."""
        order = np.argsort(entries.queue_numbers, kind="stable")
        edges = np.searchsorted(entries.queue_numbers[order], np.arange(len(entries.queues) + 1))
        for number, (topic, queue_id) in enumerate(entries.queues):
            rows = order[edges[number] : edges[number + 1]]
            if len(rows):
                queue = Queue(self._store.broker, topic, queue_id)
                yield queue, entries.queue_offsets[rows], entries.sizes[rows], entries.offsets[rows]

    def _store_time_of(self, queue: Queue, queue_offset: int, physical_offset: int) -> int:
        """Return the store time of the message that a ConsumeQueue entry points to; raise an error if it is another."""
        record = self._records.get_record(physical_offset)
        row: dict[str, Any] = {} if record is None else self._store.format.record_rules.row_of(record, queue.broker)
        if (row.get("topic"), row.get("queue_id"), row.get("queue_offset")) != (*queue[1:], queue_offset):
            found = f"message {row['queue_offset']} of {row['topic']}/{row['queue_id']}" if row else "none"
            raise IndexMismatchError(
                f"{self._store.root}: an entry of the queue {queue.topic}/{queue.queue_id} says that the message with "
                f"queue offset {queue_offset} is at physical offset {physical_offset}, but the log has {found} there"
            )
        time: int = row["store_timestamp"]
        return time

    def _store_time_if_readable(self, queue: Queue, queue_offset: int, physical_offset: int) -> int | None:
        """Return the store time of the message that a ConsumeQueue entry points to; None if it is not there."""
        try:
            return self._store_time_of(queue, queue_offset, physical_offset)
        except IndexMismatchError:
            return None

    def _add_bodies_if_needed(self, batch: pa.RecordBatch, counter: MessageCounter) -> pa.RecordBatch:
        """Return a batch; if the counter needs bodies, with bodies and only with messages of the counter's topics."""
        if BODY not in counter.columns:
            return batch
        topics = pa.array(sorted({queue.topic for queue in counter.starts}), pa.string())
        batch = batch.filter(pc.is_in(batch.column("topic").cast(pa.string()), value_set=topics))
        found = [self._records.get_record(offset) for offset in integer_column(batch, "physical_offset").tolist()]
        bodies = pa.array([None if record is None else bytes(record.body) for record in found], pa.binary())
        return batch.append_column(BODY, bodies)


def _split_off_damage(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return the intact messages of a batch, and its number of damaged ranges; missing segments are not counted."""
    corrupt = batch.column(CORRUPT_RECORD)
    if corrupt.null_count < len(corrupt):
        reasons = pc.struct_field(corrupt.drop_null(), "reason")
        damaged = pc.sum(pc.not_equal(reasons, str(Fault.MISSING_SEGMENT))).as_py() or 0
        return batch.filter(pc.is_null(corrupt)).drop_columns([CORRUPT_RECORD]), damaged
    return batch.drop_columns([CORRUPT_RECORD]), 0


def _can_count_index_entries(counter: MessageCounter, topic: str) -> bool:
    if isinstance(counter, BacklogCounter):
        return counter.can_count_index_entries(topic)
    return all(queue.topic != topic for queue in counter.starts)
