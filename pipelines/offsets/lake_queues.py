"""Queues of one store in a lake: their first and end offsets, and the first message since a time."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from deltalake import DeltaTable

from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import date_literal, is_usual_time, text_literal, timestamp_literal
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.pipelines.lag.counting import BacklogCounter, Queue
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.queues import QueueSpan, Times


class FirstMessage(NamedTuple):
    """First message of a queue that was stored at or after a time.

    Attributes:
        offset: Queue offset of the message.
        before: Largest offset of the messages that were stored before; None if the source has none.
    """

    offset: int
    before: int | None


class LakeQueues:
    """Reads queues from the table `messages`.

    Args:
        table: The table.
        broker: The store's name.
        bodies: Root folder of the packs.
    """

    def __init__(self, table: DeltaTable, broker: str, bodies: str) -> None:
        self._table, self._broker = table, broker
        self._messages = LakeMessages(table, broker, bodies)

    def spans(self, topics: Collection[str], until: datetime.datetime | None = None) -> dict[Queue, QueueSpan]:
        """Return the first and end offsets of the queues of topics.

        Args:
            topics: Their names.
            until: Messages that were stored later do not count; None for no limit.
        """
        return self._messages.measure(Times(until=until), topics, [])

    def first_since(
        self, topics: Collection[str], since: datetime.datetime, floors: Mapping[Queue, int]
    ) -> dict[Queue, FirstMessage]:
        """Return the first message since a time for each queue that has one.

        Args:
            topics: The topics of the queues.
            since: The time.
            floors: For topics that were created again, the physical offset before which records do not count.
        """
        if not topics:
            return {}
        is_since = f"store_timestamp >= {timestamp_literal(since)}"
        where = [f"broker = {text_literal(self._broker)}"]
        where.append(f"topic IN ({', '.join(map(text_literal, sorted(topics)))})")
        where += [
            f"NOT (topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id} AND physical_offset < {floor})"
            for queue, floor in sorted(floors.items())
        ]
        sql = (
            f"SELECT topic, queue_id, min(CASE WHEN {is_since} THEN queue_offset END) AS first, "
            f"max(CASE WHEN {is_since} THEN NULL ELSE queue_offset END) AS before "
            f"FROM messages WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
        )
        return {
            Queue(self._broker, row["topic"], row["queue_id"]): FirstMessage(row["first"], row["before"])
            for row in dict_rows(run_sql(self._table, "messages", sql).read_all())
            if row["first"] is not None
        }

    def reaches(self, at: datetime.datetime) -> bool:
        """Return whether the log is archived up to a time, because a message of that time or later is archived."""
        sql = (
            f"SELECT queue_id FROM messages WHERE broker = {text_literal(self._broker)} "
            f"AND store_timestamp >= {timestamp_literal(at)} AND store_date >= {date_literal(at)} "
            f"AND {is_usual_time('store_timestamp')} LIMIT 1"
        )
        return any(batch.num_rows for batch in run_sql(self._table, "messages", sql))

    def count(self, topics: Collection[str], counts: Sequence[BacklogCounter]) -> dict[Queue, QueueSpan]:
        """Feed messages to counters, and return the first and end offsets of the queues of topics."""
        return self._messages.measure(Times(), topics, counts)
