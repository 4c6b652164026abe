"""Messages of a lake, for measuring lag: the offsets of its queues and the messages in them.

Data files are sorted by topic, queue and offset, so engines can skip most files by their statistics.

A few messages are enough to find the first and last offset of a queue: those stored recently, and those from a group's
offset on. An archive has years of messages, and a group needs only the newest. If the offsets of a queue begin in the
log that the broker still has, its topic may have been created again: all its messages of that log are read, in the
order in which they were stored.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.sql import date_literal, in_condition, text_literal, timestamp_literal
from commitlake.connectors.reading.partition_sizes import group_by_size
from commitlake.pipelines.lag.backlog_counting import (
    BacklogCounter,
    OffsetRangeCounter,
    Queue,
    integer_column,
    milliseconds_column,
)
from commitlake.pipelines.lag.messages_table import MessagesTable, stored_columns
from commitlake.pipelines.lag.queue_offset_spans import (
    CountLimits,
    MessageCounter,
    QueueRun,
    QueueSpan,
    SpanFinder,
    find_topic_restarts,
)
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX, Kind
from commitlake.schemas.times import EPOCH, epoch_ms, from_ms

_MAX_QUEUES = 200
"""Queues in one query; the engine's plan grows with each."""
_MAX_PARTS = 1_000
"""Statements among which the messages of a queue are divided: of its offsets, a lake may lack most."""
_MAX_EXCESS = 100_000
"""Messages of a topic that a query may read needlessly, so that it need not name the offset of each queue."""
_FIRST_OFFSETS = 64
"""A queue with a message below this offset began in the log that the broker has: pages hold no fewer rows."""
_MAX_QUESTIONS = 20
"""Parts of a UNION in one query; each is planned separately."""


class _OffsetCondition(NamedTuple):
    """Choice of queues, and of the offsets in them at which messages are read.

    Attributes:
        queues: SQL condition of the queues.
        start: The first offset.
        end: About the end offset of the queues.
        queue_count: Number of queues.
        is_open: True for all offsets from `start` on, False for those up to `end`.
    """

    queues: str
    start: int
    end: int
    queue_count: int = 1
    is_open: bool = True

    @property
    def messages(self) -> int:
        """About the number of messages."""
        return max(0, self.end - self.start) * self.queue_count

    @property
    def sql(self) -> str:
        """The condition in SQL."""
        limit = "" if self.is_open else f" AND queue_offset < {self.end}"
        return f"({self.queues} AND queue_offset >= {self.start}{limit})"

    def divide(self, max_messages: int) -> Iterator[_OffsetCondition]:
        """Yield conditions that together select the same messages, but each of them about `max_messages` at most."""
        length = max(1, max_messages // self.queue_count, -(-(self.end - self.start) // _MAX_PARTS))
        start = self.start
        while start + length < self.end:
            yield self._replace(start=start, end=start + length, is_open=False)
            start += length
        yield self._replace(start=start)


class LakeMessages:
    """Reader of one store's messages in the table `messages`, to count them.

    Args:
        table: The table `messages`, as an engine reads it.
        broker: The store's name.
        last: The latest time that will be asked for, of many: which queues have messages is then looked up once for
            all of them. None if there may be later ones.
    """

    has_deleted = True

    def __init__(self, table: MessagesTable, broker: str, *, last: datetime.datetime | None = None) -> None:
        self._table, self._broker, self._last = table, broker, last
        self._first_stored: dict[str, dict[Queue, datetime.datetime]] = {}

    def measure_queues(
        self, times: CountLimits, topics: Collection[str], counters: Sequence[MessageCounter]
    ) -> dict[Queue, QueueSpan]:
        """Pass each counter the messages that it needs, and return the first and end offset of each queue."""
        starts: dict[Queue, int] = {}
        for count in counters:
            if isinstance(count, BacklogCounter):
                for queue in self._queues_without_cursor(times, count):
                    count.add_queue(queue)
                for queue, start in count.starts.items():
                    if queue.topic in topics:
                        starts[queue] = min(start, starts.get(queue, start))
        if any(isinstance(count, BacklogCounter) for count in counters):
            # Most of thousands of retry topics have no message, and each would be a part of the query.
            topics = {queue.topic for queue in starts}
        spans = self._queue_spans(times, topics, starts)
        floors = {queue: span.floor for queue, span in spans.items() if span.floor is not None}
        for count in counters:
            if floors and isinstance(count, BacklogCounter):
                # Before the first batch: messages from before a restart of the offsets must not count.
                count.reset_counts(floors)
        self._table.feed_counters(
            self._broker, [(count, list(self._batch_statements(count, spans))) for count in counters]
        )
        return spans

    def read_queue_ends(self, times: CountLimits, excluded_topics: Collection[str] = ()) -> dict[Queue, QueueSpan]:
        """Return the first and end offset of each queue of ordinary topics, from messages that the broker still has.

        Args:
            excluded_topics: Topics that are not of interest.
        """
        compared = timestamp_literal(times.compared_at or EPOCH)
        last = "last_value(queue_offset ORDER BY physical_offset)"
        where = [*self._time_conditions(times), f"kind = {text_literal(Kind.NORMAL)}"]
        if excluded_topics:
            where.append(f"NOT {_topics_condition(excluded_topics)}")
        sql = (
            f"SELECT topic, queue_id, min(queue_offset) AS first, {last} AS last, "
            f"{last} FILTER (WHERE store_timestamp <= {compared}) AS compared "
            f"FROM messages WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
        )
        return {
            Queue(self._broker, row["topic"], row["queue_id"]): QueueSpan(
                row["first"], row["last"] + 1, None if row["compared"] is None else row["compared"] + 1
            )
            for row in self._query_rows(sql)
        }

    def _time_conditions(self, times: CountLimits) -> list[str]:
        """Return SQL conditions for messages stored up to `times.until` that the broker has not deleted."""
        where = self._stored_conditions(times.until)
        if times.log_start is not None:
            where.append(f"physical_offset >= {times.log_start}")
        return where

    def _stored_conditions(self, until: datetime.datetime | None) -> list[str]:
        """Return SQL conditions for the store's messages that were stored up to a time."""
        where = [f"broker = {text_literal(self._broker)}"]
        if until is not None:
            where.append(f"store_timestamp <= {timestamp_literal(until)}")
            # The date adds nothing to the time, but lets the engine skip whole partitions.
            where.append(f"store_date <= {date_literal(until)}")
        return where

    def _queues_without_cursor(self, times: CountLimits, counter: BacklogCounter) -> Iterator[Queue]:
        """Yield the queues of a counter's topics that have messages but in which it does not count yet.

        If it has cursors in all queues of the topics, statistics of the files show that there are no others.
        """
        known: dict[str, list[int]] = defaultdict(list)
        for queue in counter.starts:
            if queue.topic in counter.topics:
                known[queue.topic].append(queue.queue_id)
        alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for topic in counter.topics:
            if topic in known or not topic.startswith(RETRY_PREFIX):
                alike[tuple(sorted(known[topic]))].append(topic)
        asked = [
            f"{in_condition('topic', map(text_literal, topics))} AND {_other_queues_condition(queue_ids)}"
            for queue_ids, topics in alike.items()
        ]
        if any(topic not in known for topic in counter.topics):
            # A range, as there may be one retry topic for each of thousands of groups.
            after = RETRY_PREFIX[:-1] + chr(ord(RETRY_PREFIX[-1]) + 1)
            asked.append(f"topic >= {text_literal(RETRY_PREFIX)} AND topic < {text_literal(after)}")
        for queue in self._queues_with_messages(times, asked):
            if queue.topic in counter.topics:
                yield queue

    def _queues_with_messages(self, times: CountLimits, conditions: Sequence[str]) -> Iterator[Queue]:
        """Yield the queues with a message that meets one of the SQL conditions and is not deleted by the broker."""
        # One query for the latest time that will be asked for; the times of first messages then answer for all earlier
        # ones.
        last = times.until if times.until is None else max(times.until, self._last or times.until)
        where = " AND ".join(self._time_conditions(replace(times, until=last)))
        statements = [
            " UNION ".join(
                f"SELECT topic, queue_id, min(store_timestamp) AS stored FROM messages WHERE {where} AND {condition} "
                "GROUP BY topic, queue_id"
                for condition in conditions[first : first + _MAX_QUESTIONS]
            )
            for first in range(0, len(conditions), _MAX_QUESTIONS)
        ]
        unknown = [sql for sql in statements if sql not in self._first_stored]
        for sql, rows in zip(unknown, self._table.query_all(unknown), strict=True):
            self._first_stored[sql] = {
                Queue(self._broker, row["topic"], row["queue_id"]): row["stored"] for row in rows_to_dicts(rows)
            }
        for sql in statements:
            for queue, stored in self._first_stored[sql].items():
                if times.until is None or stored <= times.until:
                    yield queue

    def _queue_spans(
        self, times: CountLimits, topics: Collection[str], start_offsets: Mapping[Queue, int]
    ) -> dict[Queue, QueueSpan]:
        """Return the first and end offset of each queue of the given topics.

        Args:
            topics: Whose queues.
            start_offsets: For each queue of interest, the smallest offset of interest; empty for all queues and
                messages.
        """
        if not topics:
            return {}
        where = self._stored_conditions(times.until)
        if times.log_start is None or not start_offsets:
            return self._reset_deleted_queue_ends(
                self._spans_from_all_messages(times, [*where, _topics_condition(topics)]), where
            )
        live = [*where, f"physical_offset >= {times.log_start}"]
        has_first = f"{_topics_condition(topics)} AND queue_offset < {_FIRST_OFFSETS}"
        young = set(self._queues_with_messages(times, [has_first]))
        old = {queue: start for queue, start in start_offsets.items() if queue not in young}
        spans = self._spans_of_truncated_queues(times, live, old)
        if young:
            spans |= self._spans_from_all_messages(
                times, [*live, _topics_condition({queue.topic for queue in young})], young
            )
        # The broker has deleted all messages of these queues; older rows show where the queues ended.
        silent = sorted(start_offsets.keys() - spans.keys())
        for first in range(0, len(silent), _MAX_QUEUES):
            some = silent[first : first + _MAX_QUEUES]
            spans |= self._spans_from_all_messages(times, [*where, f"({' OR '.join(map(_queue_condition, some))})"])
        return self._reset_deleted_queue_ends(spans, live)

    def _reset_deleted_queue_ends(self, spans: dict[Queue, QueueSpan], where: Sequence[str]) -> dict[Queue, QueueSpan]:
        """Set the end offset to 0 for queues without messages since their topic was deleted and created again.

        Args:
            spans: Where queues begin and end.
            where: Conditions of the messages that showed this.
        """
        floors = {queue: span.floor for queue, span in spans.items() if span.floor is not None}
        topics = {queue.topic for queue in floors}
        if not floors:
            return spans
        known = ", ".join(
            f"({text_literal(queue.topic)}, {queue.queue_id}, {floor})" for queue, floor in sorted(floors.items())
        )
        sql = (
            "SELECT messages.topic, messages.queue_id, min(physical_offset) AS begin, max(physical_offset) AS last, "
            "first_value(queue_offset ORDER BY physical_offset) AS first, "
            "max(CASE WHEN physical_offset < floor THEN physical_offset END) AS before, min(floor) AS floor "
            f"FROM messages LEFT JOIN (VALUES {known}) AS again(topic, queue_id, floor) "
            "ON messages.topic = again.topic AND messages.queue_id = again.queue_id "
            f"WHERE {' AND '.join(where)} AND messages.{_topics_condition(topics)} GROUP BY messages.topic, "
            "messages.queue_id"
        )
        runs = {
            Queue(self._broker, row["topic"], row["queue_id"]): QueueRun(
                row["first"], row["begin"] if row["floor"] is None else row["floor"], row["last"], row["before"]
            )
            for row in self._query_rows(sql)
        }
        deleted = {
            queue: floor
            for queue, floor in find_topic_restarts(runs).items()
            if queue in spans and runs[queue].last < floor
        }
        return spans | {queue: QueueSpan(0, 0, floor=floor) for queue, floor in deleted.items()}

    def _spans_of_truncated_queues(
        self, times: CountLimits, live_conditions: Sequence[str], start_offsets: Mapping[Queue, int]
    ) -> dict[Queue, QueueSpan]:
        """Return the first and end offsets of queues whose first messages the broker has deleted.

        In each queue, the messages from one before its start on are read, and those stored since the earlier time; the
        first of the latter shows where the queue ended then. Queues without such messages are left out.
        """
        if not start_offsets:
            return {}
        asked = []
        if times.compared_at is not None:
            topics = _topics_condition({queue.topic for queue in start_offsets})
            since = f"store_timestamp > {timestamp_literal(times.compared_at)}"
            asked.append([topics, since, f"store_date >= {date_literal(times.compared_at)}"])
        lowest = {queue: max(0, start - 1) for queue, start in start_offsets.items()}
        asked += [[f"({places})"] for places in self._start_offset_conditions(lowest)]
        ranges = self._offset_ranges_by_queue([[*live_conditions, *conditions] for conditions in asked])
        recent = ranges.pop(0) if times.compared_at is not None else {}
        found = dict(recent)
        for since_start in ranges:
            for queue, (first, last) in since_start.items():
                found[queue] = first, max(last, recent.get(queue, (0, 0))[1])
        spans = {}
        for queue, (first, last) in found.items():
            compared_end = None if times.compared_at is None else recent.get(queue, (last + 1, 0))[0]
            spans[queue] = QueueSpan(first, last + 1, compared_end)
        return spans

    def _offset_ranges_by_queue(self, conditions: Sequence[Sequence[str]]) -> list[dict[Queue, tuple[int, int]]]:
        """Return the smallest and the largest queue offset of messages, by queue, for each list of SQL conditions."""
        found = self._table.query_all(
            [
                "SELECT topic, queue_id, min(queue_offset) AS first, max(queue_offset) AS last FROM messages "
                f"WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
                for where in conditions
            ]
        )
        return [
            {
                Queue(self._broker, row["topic"], row["queue_id"]): (row["first"], row["last"])
                for row in rows_to_dicts(rows)
            }
            for rows in found
        ]

    def _query_rows(self, sql: str) -> list[dict[str, Any]]:
        return rows_to_dicts(self._table.query(sql))

    def _spans_from_all_messages(
        self, times: CountLimits, where: Sequence[str], queues: Collection[Queue] | None = None
    ) -> dict[Queue, QueueSpan]:
        """Return the first and end offset of each given queue, by reading all of its messages.

        Args:
            where: The conditions.
            queues: The queues of interest; None for all.
        """
        compared = "NULL" if times.compared_at is None else timestamp_literal(times.compared_at)
        start = times.log_start or 0
        sql = (
            f"SELECT topic, queue_id, "
            f"min(CASE WHEN physical_offset >= {start} THEN queue_offset END) AS first, max(queue_offset) AS last, "
            f"max(CASE WHEN store_timestamp <= {compared} THEN queue_offset END) AS compared, "
            f"count(*) AS messages, max(queue_offset) - min(queue_offset) + 1 AS offsets, "
            "last_value(queue_offset ORDER BY physical_offset) AS newest "
            f"FROM messages WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
        )
        spans = {}
        for row in self._query_rows(sql):
            queue = Queue(self._broker, row["topic"], row["queue_id"])
            if queues is not None and queue not in queues:
                continue
            end = row["last"] + 1
            first = None if times.log_start is None else end if row["first"] is None else row["first"]
            compared_end = None if row["compared"] is None else row["compared"] + 1
            spans[queue] = QueueSpan(first, end, compared_end)
            # More messages than offsets, or a newest one below the largest: the offsets began again.
            if row["messages"] > row["offsets"] or row["newest"] < row["last"]:
                spans[queue] = self._span_since_recreation(queue, times, where)
        return spans

    def _span_since_recreation(self, queue: Queue, times: CountLimits, where: Sequence[str]) -> QueueSpan:
        """Return the first and end offset of a queue since its topic was created again."""
        sql = (
            "SELECT queue_offset, physical_offset, store_timestamp "
            f"FROM messages WHERE {' AND '.join(where)} AND {_queue_condition(queue)} ORDER BY physical_offset"
        )
        rows = self._table.query(sql).combine_chunks().to_batches()[0]
        offsets, physical = integer_column(rows, "queue_offset"), integer_column(rows, "physical_offset")
        finder = SpanFinder()
        finder.add_messages(queue, offsets, physical)
        span = finder.queue_spans[queue]
        is_known = physical >= max(span.floor or 0, times.log_start or 0)
        first = None if times.log_start is None else min(offsets[is_known].tolist(), default=span.end)
        compared_end = None
        if times.compared_at is not None:
            is_old = (physical >= (span.floor or 0)) & (milliseconds_column(rows) <= epoch_ms(times.compared_at))
            compared_end = max((offsets[is_old] + 1).tolist(), default=None)
        return replace(span, first=first, compared_end=compared_end)

    def _batch_statements(self, counter: MessageCounter, spans: Mapping[Queue, QueueSpan]) -> Iterator[str]:
        """Yield SELECT statements for the messages that a counter needs; none of them is in two answers."""
        starts = {
            queue: start for queue, start in counter.starts.items() if queue not in spans or start < spans[queue].end
        }
        names = stored_columns(counter.columns)
        conditions = list(self._counter_conditions(counter))
        ends = {queue: span.end for queue, span in spans.items()}
        for places in self._start_offset_conditions(starts, ends):
            yield f"SELECT {', '.join(names)} FROM messages WHERE {' AND '.join(conditions)} AND ({places})"

    def _counter_conditions(self, counter: MessageCounter) -> Iterator[str]:
        yield from self._stored_conditions(None if counter.until_ms is None else from_ms(counter.until_ms))
        if counter.since_ms is not None:
            since = from_ms(counter.since_ms)
            yield f"store_timestamp >= {timestamp_literal(since)}"
            yield f"store_date >= {date_literal(since)}"
        if counter.log_start is not None:
            yield f"physical_offset >= {counter.log_start}"
        if isinstance(counter, OffsetRangeCounter) and counter.log_end is not None:
            yield f"physical_offset < {counter.log_end}"

    def _start_offset_conditions(
        self, start_offsets: Mapping[Queue, int], ends: Mapping[Queue, int] | None = None
    ) -> Iterator[str]:
        """Yield SQL conditions that together select each queue's messages from its start offset on, each only once.

        They may select a few other messages.

        A topic with many queues is named once, with its smallest offset, if that selects few other messages.

        Args:
            ends: End offsets of queues, by which the messages of long queues are divided.
        """
        by_topic: dict[str, list[tuple[Queue, int]]] = defaultdict(list)
        for queue, start in sorted(start_offsets.items()):
            by_topic[queue.topic].append((queue, start))
        conditions: list[_OffsetCondition] = []
        for topic, queues in by_topic.items():
            least = min(start for _, start in queues)
            most = [(ends or {}).get(queue, start) for queue, start in queues]
            if len(queues) > 1 and sum(start - least for _, start in queues) <= _MAX_EXCESS:
                conditions.append(_OffsetCondition(f"topic = {text_literal(topic)}", least, max(most), len(queues)))
            else:
                conditions += [
                    _OffsetCondition(_queue_condition(queue), start, end)
                    for (queue, start), end in zip(queues, most, strict=True)
                ]
        limit = self._table.statement_messages
        if limit is not None:
            conditions = [part for condition in conditions for part in condition.divide(limit)]
        sizes = [condition.messages for condition in conditions]
        for group in group_by_size(conditions, sizes, limit or sum(sizes), _MAX_QUEUES):
            yield " OR ".join(condition.sql for condition in group)


def _topics_condition(topics: Collection[str]) -> str:
    return f"topic IN ({', '.join(map(text_literal, sorted(topics)))})"


def _queue_condition(queue: Queue) -> str:
    return f"(topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id})"


def _other_queues_condition(queue_ids: Sequence[int]) -> str:
    """Return an SQL condition that excludes the given queue ids, which are in ascending order."""
    if not queue_ids:
        return "queue_id >= 0"
    # Statistics of files can exclude rows by this form, but not by NOT IN.
    if len(queue_ids) == queue_ids[-1] + 1:
        return f"queue_id > {queue_ids[-1]}"
    return f"queue_id >= 0 AND queue_id NOT IN ({', '.join(map(str, queue_ids))})"
