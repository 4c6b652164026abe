"""Sources of offsets: the stores of a lake, or stores that are not archived.

For each queue of a store they have the first and end offset, and the first message since a time.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots, snapshot_brokers
from commitlake.connectors.lake.sql import (
    plausible_time_condition,
    selection_conditions,
    text_literal,
    timestamp_literal,
)
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import IndexMismatchError
from commitlake.connectors.reading.options import Mode, ReadOptions
from commitlake.connectors.reading.planning import plan_snapshot
from commitlake.connectors.reading.read_request import Filters, Request
from commitlake.connectors.reading.snapshots import take_snapshot
from commitlake.connectors.reading.stores import Store
from commitlake.pipelines.lag.backlog_counting import (
    COLUMNS,
    BacklogCounter,
    Queue,
    integer_column,
    milliseconds_column,
    rows_by_queue,
)
from commitlake.pipelines.lag.lake_messages import LakeMessages
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable, MessagesTable
from commitlake.pipelines.lag.offsets import offsets_at
from commitlake.pipelines.lag.queue_offset_spans import CountLimits, MessageCounter, QueueSpan
from commitlake.pipelines.lag.store_messages import StoreMessages
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter
from commitlake.pipelines.lag.subscriptions import SubscribedAt, Subscriptions, subscriptions_at
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, OffsetOwner
from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.times import epoch_ms_rounded_up


class FirstMessageSince(NamedTuple):
    """First message of a queue that was stored at or after a time.

    Attributes:
        offset: Queue offset of the message.
        before: Largest offset of the messages that were stored before; None if the source has none.
    """

    offset: int
    before: int | None


class LakeQueues:
    """Reader of one store's queues and their messages, from the table `messages`.

    Args:
        table: The table.
        broker: The store's name.
    """

    def __init__(self, table: MessagesTable, broker: str) -> None:
        self._table, self._broker = table, broker
        self._messages = LakeMessages(table, broker)

    def queue_spans(self, topics: Collection[str], until: datetime.datetime | None = None) -> dict[Queue, QueueSpan]:
        """Return the first and end offset of each queue of the given topics.

        Args:
            topics: Their names.
            until: Messages that were stored later do not count; None for no limit.
        """
        return self._messages.measure_queues(CountLimits(until=until), topics, [])

    def first_messages_since(
        self, topics: Collection[str], since: datetime.datetime, restart_offsets: Mapping[Queue, int]
    ) -> dict[Queue, FirstMessageSince]:
        """Return, for each queue, the first message stored at or after a time; queues without one are left out.

        Args:
            topics: The topics of the queues.
            since: The time.
            restart_offsets: For topics that were created again, the physical offset before which records do not count.
        """
        if not topics:
            return {}
        is_since = f"store_timestamp >= {timestamp_literal(since)}"
        where = selection_conditions(Selection(brokers=[self._broker], topics=sorted(topics)))
        where += [
            f"NOT (topic = {text_literal(queue.topic)} AND queue_id = {queue.queue_id} AND physical_offset < {floor})"
            for queue, floor in sorted(restart_offsets.items())
        ]
        sql = (
            f"SELECT topic, queue_id, min(CASE WHEN {is_since} THEN queue_offset END) AS first, "
            f"max(CASE WHEN {is_since} THEN NULL ELSE queue_offset END) AS before "
            f"FROM messages WHERE {' AND '.join(where)} GROUP BY topic, queue_id"
        )
        return {
            Queue(self._broker, row["topic"], row["queue_id"]): FirstMessageSince(row["first"], row["before"])
            for row in rows_to_dicts(self._table.query(sql))
            if row["first"] is not None
        }

    def covers_time(self, time: datetime.datetime) -> bool:
        """Return whether the lake has the messages up to a time, as shown by a message of that time or later."""
        where = [
            *selection_conditions(Selection(brokers=[self._broker], start=time)),
            plausible_time_condition("store_timestamp"),
        ]
        return bool(self._table.query(f"SELECT queue_id FROM messages WHERE {' AND '.join(where)} LIMIT 1").num_rows)

    def feed_backlog_counters(
        self, topics: Collection[str], counters: Sequence[BacklogCounter]
    ) -> dict[Queue, QueueSpan]:
        """Let each counter count messages from its cursors on; return the first and end offsets of queues."""
        return self._messages.measure_queues(CountLimits(), topics, counters)


class QueueSpans(Protocol):
    """Interface to the first and end offsets of one store's queues."""

    def queue_spans(self, topics: Collection[str], until: datetime.datetime | None = None) -> dict[Queue, QueueSpan]:
        """Return the first and end offset of each queue of the given topics."""


class QueueMessages(QueueSpans, Protocol):
    """Interface to one store's queues and their messages, in a lake or in the store's files."""

    def first_messages_since(
        self, topics: Collection[str], since: datetime.datetime, restart_offsets: Mapping[Queue, int]
    ) -> dict[Queue, FirstMessageSince]:
        """Return, for each queue, the first message stored at or after a time, where there is one."""

    def covers_time(self, time: datetime.datetime) -> bool:
        """Return whether the messages up to a time are available."""

    def feed_backlog_counters(
        self, topics: Collection[str], counters: Sequence[BacklogCounter]
    ) -> dict[Queue, QueueSpan]:
        """Let each counter count messages from its cursors on; return the first and end offsets of queues."""


@dataclass(frozen=True, slots=True)
class OffsetSource:
    """Queues, subscriptions and group offsets of one store, from a lake or from the store's files.

    Attributes:
        broker: Name of the store.
        queues: Queues of the store.
        subscriptions: Last known subscriptions of groups.
        newest: Last known offsets of groups.
        not_read: Sentences on why the offsets of groups could not be read; empty if they were.
    """

    broker: str
    queues: QueueMessages
    subscriptions: Subscriptions
    newest: Mapping[OffsetOwner, int]
    not_read: tuple[str, ...] = ()

    @property
    def known_groups(self) -> set[str]:
        """Groups with an offset or a subscription."""
        return {position.group for position in self.newest} | {key.group for key in self.subscriptions.found}

    def topics_of_group(self, group: str) -> set[str]:
        """Return the topics that a group consumes, except retry topics."""
        known = {position.topic for position in self.newest if position.group == group}
        known |= {key.topic for key in self.subscriptions.found if key.group == group}
        return {topic for topic in known if not topic.startswith(RETRY_PREFIX)}

    def subscription_filter(self, group: str, topic: str) -> SubscriptionFilter:
        """Return the filter of a group's subscription to a topic; if unknown, a filter that accepts all messages."""
        return (
            ALL
            if topic.startswith(RETRY_PREFIX)
            else self.subscriptions.find_subscription(GroupTopic(group, topic)).wanted
        )


def open_lake_sources(
    lake: Lake, brokers: Collection[str] = (), messages: MessagesTable | None = None
) -> list[OffsetSource]:
    """Return, for each store of a lake, its queues, group offsets and subscriptions.

    Args:
        brokers: Stores to return; all if empty.
        messages: The lake's messages; None to read them in this process.
    """
    table = messages or ArrowMessagesTable(lake.table("messages"))
    offsets, subscribed = open_snapshots(lake, OFFSETS), open_snapshots(lake, SUBSCRIBED)
    last = read_last_commit(lake)
    names = set(last.stores if last is not None else ())
    if offsets is not None:
        names |= set(snapshot_brokers(offsets, OFFSETS))
    now = datetime.datetime.now(datetime.UTC)
    found = []
    for broker in sorted(brokers or names):
        moment = None if offsets is None else offsets_at(offsets, broker, None).get(OffsetKind.GROUP)
        newest = {} if moment is None else {position: offset.low for position, offset in moment.offsets.items()}
        subscriptions = Subscriptions() if subscribed is None else subscriptions_at(subscribed, broker, now)
        found.append(OffsetSource(broker, LakeQueues(table, broker), subscriptions, newest))
    return found


def open_store_sources(stores: Iterable[Store]) -> list[OffsetSource]:
    """Return, for each local store, its queues, group offsets and subscriptions from its own files."""
    found = []
    now = datetime.datetime.now(datetime.UTC)
    for store in stores:
        progress = read_store_snapshot(store, now)
        newest: dict[OffsetOwner, int] = {}
        subscribed: dict[GroupTopic, SubscribedAt] = {}
        if progress is not None:
            newest = {place: offset for place, offset in progress.offsets.items() if place.kind == OffsetKind.GROUP}
            for key, one in progress.subscriptions.items():
                subscribed[key] = SubscribedAt(SubscriptionFilter.of(one.expression_type or "", one.expression or ""))
        not_read: tuple[str, ...] = ()
        if progress is not None and OffsetKind.GROUP not in progress.taken:
            not_read = progress.unreadable or (progress.note,)
        found.append(OffsetSource(store.broker, StoreQueues(store), Subscriptions(subscribed), newest, not_read))
    return found


class StoreQueues:
    """Reads a store's queues and their messages from its log and ConsumeQueue files.

    Args:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def queue_spans(self, topics: Collection[str], until: datetime.datetime | None = None) -> dict[Queue, QueueSpan]:
        """Return the first and end offset of each queue of the given topics."""
        return self._measure_queues(CountLimits(until=until), topics, lambda: ())

    def first_messages_since(
        self, topics: Collection[str], since: datetime.datetime, restart_offsets: Mapping[Queue, int]
    ) -> dict[Queue, FirstMessageSince]:
        """Return, for each queue, the first message stored at or after a time; queues without one are left out.

        Segments without such messages are not read. A store has no missing messages before the first one.
        """
        if not topics:
            return {}
        since_ms = epoch_ms_rounded_up(since)
        options = ReadOptions(path=self._store.root, mode=Mode.DROPMALFORMED)
        filters = Filters.of(Selection(topics=sorted(topics), start=since))
        plan = plan_snapshot([self._store], take_snapshot([self._store]), options, filters)
        schema = arrow_schema(SOURCE.select_columns(COLUMNS))
        request = Request.of(options, filters, schema)
        found: dict[Queue, int] = {}
        for split in plan.splits:
            for batch in read_split(split, request):
                offsets, physical = integer_column(batch, "queue_offset"), integer_column(batch, "physical_offset")
                is_since = milliseconds_column(batch) >= since_ms
                for queue, rows in rows_by_queue(self._store.broker, batch):
                    here = rows[is_since[rows] & (physical[rows] >= restart_offsets.get(queue, 0))]
                    if len(here):
                        found[queue] = min(int(np.min(offsets[here])), found.get(queue, int(offsets[here[0]])))
        return {
            queue: FirstMessageSince(offset, offset - 1) for queue, offset in found.items() if queue.topic in topics
        }

    def covers_time(self, time: datetime.datetime) -> bool:
        """Return whether the log up to a time is available, which is so for any time up to now."""
        return time <= datetime.datetime.now(datetime.UTC)

    def feed_backlog_counters(
        self, topics: Collection[str], counters: Sequence[BacklogCounter]
    ) -> dict[Queue, QueueSpan]:
        """Let each counter count messages from its cursors on; return the first and end offsets of queues."""
        return self._measure_queues(CountLimits(), topics, lambda: counters)

    def _measure_queues(
        self, times: CountLimits, topics: Collection[str], make_counters: Callable[[], Sequence[MessageCounter]]
    ) -> dict[Queue, QueueSpan]:
        """Find queues' first and end offsets by ConsumeQueue entries, or from the log if an entry does not match."""
        try:
            return StoreMessages(self._store).measure_queues(times, topics, make_counters())
        except IndexMismatchError:
            for count in make_counters():
                if isinstance(count, BacklogCounter):
                    count.reset_counts({})
            return StoreMessages(self._store, use_indexes=False).measure_queues(times, topics, make_counters())
