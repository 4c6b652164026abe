"""The messages of a lake, for counting what is behind: where queues begin and end, and what is in them.

Both are questions to deltalake's engine. Data files are sorted by topic, queue and offset, and their statistics tell
the engine which of them it need not open.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import date_literal, text_literal, timestamp_literal
from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.queues import QueueSpan, Times
from commitlake.schemas.tables.messages import MESSAGES

_MAX_QUEUES = 200
"""Queues that one question names: the engine's plan grows with each."""


class LakeMessages:
    """The messages of one store in a lake.

    Args:
        table: The table `messages`.
        broker: The store's name.
    """

    def __init__(self, table: DeltaTable, broker: str) -> None:
        self._table, self._broker = table, broker

    def spans(self, times: Times, topics: Collection[str] | None = None) -> dict[Queue, QueueSpan]:
        """Return where each queue begins and ends.

        Args:
            times: The times of interest.
            topics: Only these; None for all.

        Raises:
            QueryError: The table cannot be read.
        """
        compared = "NULL" if times.compared_at is None else timestamp_literal(times.compared_at)
        start = times.log_start or 0
        where = [*self._until(times.until)]
        if topics is not None:
            where.append(f"topic IN ({', '.join(map(text_literal, sorted(topics))) or 'NULL'})")
        sql = (
            f"SELECT topic, queue_id, "
            f"min(CASE WHEN physical_offset >= {start} THEN queue_offset END) AS first, max(queue_offset) AS last, "
            f"max(CASE WHEN store_timestamp <= {compared} THEN queue_offset END) AS compared "
            f"FROM messages WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
        )
        spans = {}
        for row in run_sql(self._table, "messages", sql).read_all().to_pylist():
            end = row["last"] + 1
            first = None if times.log_start is None else end if row["first"] is None else row["first"]
            compared_end = None if row["compared"] is None else row["compared"] + 1
            spans[Queue(self._broker, row["topic"], row["queue_id"])] = QueueSpan(first, end, compared_end)
        return spans

    def batches(
        self, starts: Mapping[Queue, int], columns: Collection[str], until: datetime.datetime | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of some queues from an offset on.

        Args:
            starts: The offset for each queue.
            columns: The columns.
            until: Only messages that were stored then or before.

        Raises:
            QueryError: The table cannot be read.
        """
        ordered = sorted(starts.items())
        for first in range(0, len(ordered), _MAX_QUEUES):
            some = ordered[first : first + _MAX_QUEUES]
            places = " OR ".join(
                f"(topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id} AND queue_offset >= {start})"
                for queue, start in some
            )
            where = " AND ".join([*self._until(until), f"({places})"])
            schema = to_arrow_schema(StructType([MESSAGES[name] for name in columns]), timezone="UTC")
            sql = f"SELECT {', '.join(columns)} FROM messages WHERE {where}"
            for batch in run_sql(self._table, "messages", sql):
                yield batch.cast(schema)  # the engine gives texts in a form that Arrow's functions do not all know

    def _until(self, until: datetime.datetime | None) -> Iterator[str]:
        yield f"broker = {text_literal(self._broker)}"
        if until is not None:
            yield f"store_timestamp <= {timestamp_literal(until)}"
            yield f"store_date <= {date_literal(until)}"
