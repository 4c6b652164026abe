"""Messages of a lake, for measuring lag: the offsets of its queues and the messages in them.

Both are queries to deltalake's engine. Data files are sorted by topic, queue and offset, so the engine can skip most
files by their statistics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.lake.packs.body_batches import batches_with_bodies
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import date_literal, text_literal, timestamp_literal
from commitlake.pipelines.lag.counting import BacklogCounter, Queue, milliseconds, numbers
from commitlake.pipelines.lag.messages import BODY, Count
from commitlake.pipelines.lag.queues import QueueSpan, SpanFinder, Times
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.times import EPOCH, MILLISECOND, epoch_ms

_MAX_QUEUES = 200
"""Queues in one query; the engine's plan grows with each."""
_BODY_COLUMNS = ("body_ref", "body_crc")


class LakeMessages:
    """The messages of one store in a lake.

    Args:
        table: The table `messages`.
        broker: The store's name.
        bodies: Root of the packs.
    """

    def __init__(self, table: DeltaTable, broker: str, bodies: str) -> None:
        self._table, self._broker, self._bodies = table, broker, bodies

    def measure(self, times: Times, topics: Collection[str], counts: Sequence[Count]) -> dict[Queue, QueueSpan]:
        """Give each count the messages that it needs; see `Messages.measure`."""
        spans = self._spans(times, topics)
        floors = {queue: span.floor for queue, span in spans.items() if span.floor is not None}
        for count in counts:
            if floors and isinstance(count, BacklogCounter):
                count.begin_again(floors)
            for batch in self._batches(count, spans):
                count.add(self._broker, batch)
        return spans

    def _spans(self, times: Times, topics: Collection[str]) -> dict[Queue, QueueSpan]:
        if not topics:
            return {}
        compared = "NULL" if times.compared_at is None else timestamp_literal(times.compared_at)
        start = times.log_start or 0
        where = [f"broker = {text_literal(self._broker)}"]
        where.append(f"topic IN ({', '.join(map(text_literal, sorted(topics)))})")
        if times.until is not None:
            where.append(f"store_timestamp <= {timestamp_literal(times.until)}")
            where.append(f"store_date <= {date_literal(times.until)}")
        sql = (
            f"SELECT topic, queue_id, "
            f"min(CASE WHEN physical_offset >= {start} THEN queue_offset END) AS first, max(queue_offset) AS last, "
            f"max(CASE WHEN store_timestamp <= {compared} THEN queue_offset END) AS compared, "
            f"count(*) AS messages, max(queue_offset) - min(queue_offset) + 1 AS offsets, "
            f"last_value(queue_offset ORDER BY physical_offset) AS newest "
            f"FROM messages WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
        )
        spans = {}
        for row in run_sql(self._table, "messages", sql).read_all().to_pylist():
            queue = Queue(self._broker, row["topic"], row["queue_id"])
            end = row["last"] + 1
            first = None if times.log_start is None else end if row["first"] is None else row["first"]
            compared_end = None if row["compared"] is None else row["compared"] + 1
            spans[queue] = QueueSpan(first, end, compared_end)
            if row["messages"] > row["offsets"] or row["newest"] < row["last"]:
                spans[queue] = self._span_of_last_topic(queue, times, where)
        return spans

    def _span_of_last_topic(self, queue: Queue, times: Times, where: Sequence[str]) -> QueueSpan:
        """Return the offsets of a queue whose topic was created again."""
        place = f"topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id}"
        sql = (
            "SELECT queue_offset, physical_offset, store_timestamp "
            f"FROM messages WHERE {' AND '.join(where)} AND {place} ORDER BY physical_offset"
        )
        rows = run_sql(self._table, "messages", sql).read_all().combine_chunks().to_batches()[0]
        offsets, physical = numbers(rows, "queue_offset"), numbers(rows, "physical_offset")
        finder = SpanFinder()
        finder.add(queue, offsets, physical)
        span = finder.found[queue]
        is_known = physical >= max(span.floor or 0, times.log_start or 0)
        first = None if times.log_start is None else min(offsets[is_known].tolist(), default=span.end)
        compared_end = None
        if times.compared_at is not None:
            is_old = (physical >= (span.floor or 0)) & (milliseconds(rows) <= epoch_ms(times.compared_at))
            compared_end = max((offsets[is_old] + 1).tolist(), default=None)
        return replace(span, first=first, compared_end=compared_end)

    def _batches(self, count: Count, spans: dict[Queue, QueueSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the batches that a count needs. Queues that end before the count's start are not read."""
        ordered = sorted(
            (queue, start) for queue, start in count.starts.items() if queue not in spans or start < spans[queue].end
        )
        names = [name for name in count.columns if name != BODY]
        if BODY in count.columns:
            names += _BODY_COLUMNS
        schema = to_arrow_schema(StructType([MESSAGES[name] for name in names]), timezone="UTC")
        conditions = list(self._conditions(count))
        for first in range(0, len(ordered), _MAX_QUEUES):
            places = " OR ".join(
                f"(topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id} AND queue_offset >= {start})"
                for queue, start in ordered[first : first + _MAX_QUEUES]
            )
            sql = f"SELECT {', '.join(names)} FROM messages WHERE {' AND '.join(conditions)} AND ({places})"
            for batch in run_sql(self._table, "messages", sql):
                # The engine returns strings in a form that not all functions of Arrow accept.
                plain = batch.cast(schema)
                yield from self._with_bodies(plain) if BODY in count.columns else (plain,)

    def _conditions(self, count: Count) -> Iterator[str]:
        yield f"broker = {text_literal(self._broker)}"
        if count.until_ms is not None:
            until = EPOCH + count.until_ms * MILLISECOND
            yield f"store_timestamp <= {timestamp_literal(until)}"
            yield f"store_date <= {date_literal(until)}"
        if count.since_ms is not None:
            since = EPOCH + count.since_ms * MILLISECOND
            yield f"store_timestamp >= {timestamp_literal(since)}"
            yield f"store_date >= {date_literal(since)}"
        if count.log_start is not None:
            yield f"physical_offset >= {count.log_start}"

    def _with_bodies(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add the bodies to a batch. If one cannot be read, all bodies are null, and the count reports that."""
        try:
            yield from list(batches_with_bodies(batch, open_store(self._bodies), FrameCache()))
        except PackError:
            yield batch.append_column(BODY, pa.nulls(batch.num_rows, pa.binary()))
