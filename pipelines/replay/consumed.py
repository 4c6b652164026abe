"""Counts the chosen messages that consumer groups have consumed, by the offsets in the lake."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence

from deltalake import DeltaTable

from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import NoTableError, open_table, run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.pipelines.lag.offsets import offsets_at
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.planning import QueueChoice
from commitlake.pipelines.snapshot.progress import OffsetKind

Places = dict[tuple[str, str, int], int]
"""Queue offsets by store, topic and queue."""


def group_offsets(lake: LakePaths, brokers: Sequence[str], at: datetime.datetime | None = None) -> dict[str, Places]:
    """Return the next offset of each group in each queue, from the snapshots.

    Args:
        lake: the lake.
        brokers: the stores.
        at: the time; None for the newest snapshots. Between two snapshots, the smallest possible offset is returned.
    """
    found: dict[str, Places] = {}
    try:
        table = open_table(lake, "consumer_offsets")
    except NoTableError:
        return found
    for broker in brokers:
        moment = offsets_at(table, broker, at).get(OffsetKind.GROUP)
        for position, offset in ({} if moment is None else moment.offsets).items():
            found.setdefault(position.group, {})[broker, position.topic, position.queue_id] = offset.low
    return found


def live_offsets(admin: Admin, group: str, brokers: Collection[str] | None = None) -> Places:
    """Return a group's next offsets from live brokers; empty if they do not know the group.

    Args:
        admin: client that queries the brokers.
        group: the group.
        brokers: brokers to query; None for all.

    Raises:
        RocketMQError: if a broker does not answer.
    """
    return {
        (queue.broker_name, queue.topic, queue.queue_id): max(0, stats.consumer_offset)
        for queue, stats in admin.consume_stats(group).items()
        if brokers is None or queue.broker_name in brokers
    }


def offsets_of(lake: LakePaths, group: str, brokers: Sequence[str], at: datetime.datetime | None = None) -> Places:
    """Return one group's next offsets, as `group_offsets` does.

    Raises:
        ReplayError: if no snapshot has the group.
    """
    groups = group_offsets(lake, brokers, at)
    if group not in groups:
        raise ReplayError(
            f"the lake has no offsets of the group {group!r}"
            + (" at that time" if at is not None else "")
            + ". 'commitlake snapshot' and 'archive' store them, and 'commitlake lag' shows the groups"
        )
    return groups[group]


def count_consumed(
    table: DeltaTable, condition: str, choice: Sequence[QueueChoice], offsets: Mapping[tuple[str, str, int], int]
) -> int:
    """Return the number of chosen messages before a group's offsets.

    Args:
        table: `messages`.
        condition: condition of the chosen messages.
        choice: the chosen messages by queue.
        offsets: offsets of the group.
    """
    consumed = 0
    for queue in choice:
        offset = offsets.get((queue.broker, queue.topic, queue.queue_id), 0)
        if offset > queue.last_offset:
            consumed += queue.messages
        elif offset > queue.first_offset:
            sql = (
                f"SELECT count(*) AS messages FROM messages WHERE {condition} "
                f"AND broker = {text_literal(queue.broker)} AND topic = {text_literal(queue.topic)} "
                f"AND queue_id = {queue.queue_id} AND queue_offset < {offset}"
            )
            consumed += run_sql(table, "messages", sql).read_all().column("messages")[0].as_py()
    return consumed
