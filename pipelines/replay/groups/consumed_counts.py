"""Counts the chosen messages that consumer groups have consumed, by the offsets in the lake.

A retry or a dead letter is in a topic of one group's own. Whether another group has consumed the message follows from
the record that the group failed on first, in the message's own topic: ORIGIN_MESSAGE_ID is its id.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable
from commitlake.pipelines.lag.offsets import offsets_at
from commitlake.pipelines.offsets.offset_sources import LakeQueues
from commitlake.pipelines.replay.groups.not_consumed_messages import OffsetLogRange, find_offset_log_ranges
from commitlake.pipelines.replay.planning import QueueCount
from commitlake.pipelines.snapshot.progress import OffsetKind
from commitlake.schemas.layouts.rocketmq.properties import ORIGIN_MESSAGE_ID
from commitlake.schemas.layouts.rocketmq.topics import FAILED_KINDS, Kind, kind_of, strip_broadcast_suffix

Places = dict[tuple[str, str, int], int]
"""Queue offsets by store, topic and queue."""


class KnownOffsets(NamedTuple):
    """Next offsets that consumer groups will consume, and when these offsets were read.

    Attributes:
        groups: offsets by group.
        as_of: by store, time of the offsets.
    """

    groups: Mapping[str, Places]
    as_of: Mapping[str, datetime.datetime]


def read_known_offsets(lake: Lake, brokers: Sequence[str]) -> KnownOffsets:
    """Return the next offset of each group in each queue, from the newest snapshots in the lake.

    Args:
        brokers: the stores.
    """
    found: dict[str, Places] = {}
    as_of: dict[str, datetime.datetime] = {}
    table = lake.find("consumer_offsets")
    if table is None:
        return KnownOffsets(found, as_of)
    for broker in brokers:
        moment = offsets_at(table, broker, None).get(OffsetKind.GROUP)
        if moment is None:
            continue
        as_of[broker] = moment.taken
        for position, offset in moment.offsets.items():
            group = strip_broadcast_suffix(position.group)
            found.setdefault(group, {})[broker, position.topic, position.queue_id] = offset.low
    return KnownOffsets(found, as_of)


def fetch_live_offsets(admin: Admin, group: str, brokers: Collection[str] | None = None) -> Places:
    """Return a group's next offsets from live brokers; empty if they do not know the group.

    Args:
        brokers: brokers to query; None for all.
    """
    return {
        (queue.broker_name, queue.topic, queue.queue_id): max(0, stats.consumer_offset)
        for queue, stats in admin.consume_stats(group).items()
        if brokers is None or queue.broker_name in brokers
    }


class ConsumedCount(NamedTuple):
    """Number of the chosen messages that a consumer group has consumed.

    Attributes:
        messages: messages before its offsets; retries and dead letters count if their first record is before them.
        unknown: retries and dead letters whose first record the table does not have, and messages of a deleted topic.
    """

    messages: int
    unknown: int = 0


class ChosenMessages:
    """Messages chosen for a replay, to be compared with the offsets of consumer groups.

    Args:
        table: `messages`.
        condition: SQL condition for the chosen rows of `messages`.
        choice: Numbers of the chosen messages by queue, from `count_messages_by_queue`.
        as_of: Time of the groups' offsets, by store.
    """

    def __init__(
        self,
        table: DeltaTable,
        condition: str,
        choice: Sequence[QueueCount],
        as_of: Mapping[str, datetime.datetime] | None = None,
    ) -> None:
        self._table, self._condition = table, condition
        self._as_of = as_of or {}
        self._failed = [queue for queue in choice if kind_of(queue.topic) in FAILED_KINDS]
        self._others = [queue for queue in choice if kind_of(queue.topic) not in FAILED_KINDS]

    @property
    def has_retries_or_dead_letters(self) -> bool:
        """True if retries or dead letters are among the chosen messages."""
        return bool(self._failed)

    def count_consumed(self, group_offsets: Mapping[tuple[str, str, int], int]) -> ConsumedCount:
        """Return how many of the chosen messages a group has consumed, by its offsets."""
        messages = sum(self._count_consumed_in_queue(queue, group_offsets) for queue in self._others)
        unknown = self._deleted_topic_message_count
        if not self._failed:
            return ConsumedCount(messages, unknown)
        unknown += sum(queue.messages for queue in self._failed)
        for broker, topic, queue_id, numbers in self._original_records:
            unknown -= len(numbers)
            messages += int((numbers < group_offsets.get((broker, topic, queue_id), 0)).sum())
        return ConsumedCount(messages, unknown)

    def _count_consumed_in_queue(self, queue: QueueCount, group_offsets: Mapping[tuple[str, str, int], int]) -> int:
        place = Queue(queue.broker, queue.topic, queue.queue_id)
        offset, life = group_offsets.get(place, 0), self._recreated_queues.get(place)
        if offset > queue.last_offset and life is None:
            return queue.messages
        if offset <= queue.first_offset:
            return 0
        is_before = f"queue_offset < {offset}"
        if life is not None:
            is_before += f" AND physical_offset >= {life.floor}"
            is_before += "" if life.restart is None else f" AND physical_offset < {life.restart}"
        return self._count_matching(place, is_before)

    def _count_matching(self, queue: Queue, condition: str) -> int:
        sql = (
            f"SELECT count(*) AS messages FROM messages WHERE {self._condition} "
            f"AND broker = {text_literal(queue.broker)} AND topic = {text_literal(queue.topic)} "
            f"AND queue_id = {queue.queue_id} AND {condition}"
        )
        return int(run_sql(self._table, "messages", sql).read_all().column("messages")[0].as_py())

    @cached_property
    def _recreated_queues(self) -> dict[Queue, OffsetLogRange]:
        """Queues whose topic was deleted and created again, with the log range for which a group's offset is valid."""
        found: dict[Queue, OffsetLogRange] = {}
        for broker, as_of in self._as_of.items():
            topics = {queue.topic for queue in self._others if queue.broker == broker}
            if topics:
                queues = LakeQueues(ArrowMessagesTable(self._table), broker)
                found |= find_offset_log_ranges(queues, queues.queue_spans(topics), as_of)
        return found

    @cached_property
    def _deleted_topic_message_count(self) -> int:
        """Number of chosen messages whose topic was deleted before the groups' offsets were read."""
        chosen = {Queue(queue.broker, queue.topic, queue.queue_id) for queue in self._others}
        return sum(
            self._count_matching(queue, f"physical_offset < {life.floor}")
            for queue, life in self._recreated_queues.items()
            if queue in chosen and life.floor
        )

    @cached_property
    def _original_records(self) -> list[tuple[str, str, int, Array]]:
        """Originals of the chosen retries and dead letters: store, topic, queue id, and queue offsets."""
        kinds = ", ".join(text_literal(kind) for kind in sorted(FAILED_KINDS))
        sql = (
            "SELECT first.broker AS broker, topic, queue_id, array_agg(queue_offset) AS offsets FROM "
            f"(SELECT broker, properties[{text_literal(ORIGIN_MESSAGE_ID)}] AS first_id FROM messages "
            f"WHERE {self._condition} AND kind IN ({kinds})) AS failed JOIN "
            "(SELECT broker, msg_id, topic, queue_id, queue_offset FROM messages "
            f"WHERE kind = {text_literal(Kind.NORMAL)}) AS first "
            "ON failed.broker = first.broker AND failed.first_id = first.msg_id GROUP BY 1, 2, 3"
        )
        rows = rows_to_dicts(run_sql(self._table, "messages", sql).read_all())
        return [(row["broker"], row["topic"], row["queue_id"], np.array(row["offsets"], np.int64)) for row in rows]
