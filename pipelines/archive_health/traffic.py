"""Traffic of a lake's stores in their newest whole minute, and the ends of their dead-letter queues."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.pipelines.archive_health.state import ArchiveState, query_table
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind

_MINUTE = datetime.timedelta(minutes=1)
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class TopicTraffic:
    """Number and size of a topic's messages in one minute of a store.

    Attributes:
        broker: The store's name.
        topic: The topic.
        messages: Number of stored messages.
        bytes: Size of their records.
    """

    broker: str
    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """Message counts of a lake's topics in the newest archived minute, with broker addresses and dead-letter offsets.

    Attributes:
        topics: Each topic that had messages within a day, in the newest minute of its store that is archived as a
            whole. That is the minute before the newest one with a message.
        addresses: Address of each store's broker in that day, `IP:PORT`.
        dead_letter_ends: By store and consumer group, the offset of the next dead letter, summed over the queues.
    """

    topics: Sequence[TopicTraffic] = ()
    addresses: Mapping[str, str] = field(default_factory=dict)
    dead_letter_ends: Mapping[tuple[str, str], int] = field(default_factory=dict)


def read_traffic(lake: Lake, state: ArchiveState) -> Traffic:
    """Return the message counts of a lake's topics in the newest archived minute of their stores."""
    ends = {store.broker: store.newest - _MINUTE for store in state.stores if store.newest is not None}
    topics = _read_topic_traffic(lake, ends)
    return Traffic(topics, _read_broker_addresses(lake, ends) if topics else {}, _read_dead_letter_ends(lake))


def _read_topic_traffic(lake: Lake, minute_ends: Mapping[str, datetime.datetime]) -> list[TopicTraffic]:
    """Return the number and size of each topic's messages in the newest whole minute of its store.

    `minute_ends` has the end of this minute, by store.
    """
    found = []
    for broker, end in minute_ends.items():
        newest = timestamp_literal(end - _MINUTE)
        columns = [
            f"sum(CASE WHEN minute = {newest} THEN {name} ELSE 0 END) AS {name}" for name in ("messages", "bytes")
        ]
        rows = query_table(
            lake,
            "topic_minutes",
            f"SELECT topic, {', '.join(columns)} FROM topic_minutes WHERE broker = {text_literal(broker)} "
            f"AND minute >= {timestamp_literal(end - _DAY)} AND minute <= {newest} GROUP BY topic ORDER BY topic",
        )
        found += [TopicTraffic(broker, row["topic"], row["messages"], row["bytes"]) for row in rows]
    return found


def _read_broker_addresses(lake: Lake, minute_ends: Mapping[str, datetime.datetime]) -> dict[str, str]:
    found = {}
    for broker, end in minute_ends.items():
        rows = query_table(
            lake,
            "messages",
            f"SELECT store_host FROM messages WHERE broker = {text_literal(broker)} AND store_date = DATE "
            f"'{end.astimezone(datetime.UTC).date()}' AND store_host IS NOT NULL LIMIT 1",
        )
        if rows:
            found[broker] = rows[0]["store_host"]
    return found


def _read_dead_letter_ends(lake: Lake) -> dict[tuple[str, str], int]:
    newest = query_table(
        lake,
        "topic_minutes",
        f"SELECT DISTINCT date FROM (SELECT CAST(max(minute) AS DATE) AS date FROM topic_minutes WHERE kind = "
        f"{text_literal(Kind.DLQ)} AND minute IS NOT NULL GROUP BY broker, topic, queue_id)",
    )
    if not newest:
        return {}
    dates = ", ".join(f"DATE '{row['date']}'" for row in newest)
    rows = query_table(
        lake,
        "messages",
        "SELECT broker, topic, queue_id, max(queue_offset) + 1 AS end_offset FROM messages WHERE kind = "
        f"{text_literal(Kind.DLQ)} AND store_date IN ({dates}) GROUP BY broker, topic, queue_id",
    )
    ends: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        ends[row["broker"], row["topic"].removeprefix(DLQ_PREFIX)] += row["end_offset"] or 0
    return dict(ends)
