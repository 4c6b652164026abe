"""Finds links between topics: pairs in which business keys of one topic appear later in the other.

The records of a key are sorted by time. If a record is followed by one in a different topic within `MAX_DELAY`, the
first topic feeds the second: an order is sent to `orders`, then to `payments`. Copies that a broker makes (delayed
records, half messages, retries, dead letters, traces) are left out, because they belong to the same message.

DataFusion reads the columns and sorts them in bounded memory, on disk if necessary.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import plausible_time_condition, selection_conditions
from commitlake.pipelines.message_keys.progress import open_newest_messages
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.topics import Kind
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import EPOCH, MILLISECOND

MAX_LINKS = 500
"""Largest number of links of a graph; if there are more, those with the most passes are taken."""
MAX_DELAY = datetime.timedelta(days=7)
_DAY = datetime.timedelta(days=1)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TopicLink:
    """Link between two topics: records of one are followed by records of the other with the same business key.

    Attributes:
        source: The earlier topic.
        target: The next topic.
        passes: Number of times that a record of `source` was followed by one of `target` with the same key.
        keys: Approximate number of such keys.
        median: Median time between the two.
        p95: 95th percentile of that time.
    """

    source: str
    target: str
    passes: int
    keys: int
    median: datetime.timedelta
    p95: datetime.timedelta


@dataclass(frozen=True, slots=True)
class TopicNode:
    """A topic in the graph, with numbers of its records and keys.

    Attributes:
        topic: Its name.
        records: Number of its records with a key.
        keys: Approximate number of their keys.
    """

    topic: str
    records: int
    keys: int


@dataclass(frozen=True, slots=True)
class TopicGraph:
    """Topics in a time range, and links between them.

    Attributes:
        start: Start of the time range.
        end: End of the time range, exclusive.
        topics: Topics with keys, those with most records first.
        links: Links, those with most passes first.
        not_shown: Number of links that are left out.
    """

    start: datetime.datetime
    end: datetime.datetime
    topics: Sequence[TopicNode]
    links: Sequence[TopicLink]
    not_shown: int = 0


def build_topic_graph(
    lake: Lake,
    start: datetime.datetime,
    end: datetime.datetime,
    *,
    max_delay: datetime.timedelta = MAX_DELAY,
    limit: int = MAX_LINKS,
) -> TopicGraph:
    """Find the links between topics in a time range: pairs of topics through which the same business keys pass.

    Args:
        start: Records stored at or after this time.
        end: Records stored before this time.
        max_delay: Records further apart are not linked.
        limit: Largest number of links; if there are more, those with the most passes are taken.

    Raises:
        UsageError: The time range is empty.
    """
    if start >= end:
        raise UsageError(f"topics: expected a start before the end, found {start} to {end}")
    table = open_newest_messages(lake)
    chosen = selection_conditions(Selection(kinds=[Kind.NORMAL], start=start, end=end))
    where = " AND ".join([*chosen, "keys IS NOT NULL"])
    keyed = (
        f"SELECT unnest(keys) AS k, topic, store_timestamp AS at, physical_offset AS place FROM messages WHERE {where}"
    )
    topics = run_sql(
        table,
        "messages",
        f"SELECT topic, count(*) AS records, approx_distinct(k) AS keys FROM ({keyed}) GROUP BY topic "
        f"ORDER BY records DESC, topic LIMIT {limit}",
        sorts_large_result=True,
    ).read_all()
    longest = max_delay // _MICROSECOND
    following = (
        "SELECT k, topic AS source, lead(topic) OVER w AS target, "
        "arrow_cast(lead(at) OVER w, 'Int64') - arrow_cast(at, 'Int64') AS delay "
        f"FROM ({keyed}) WINDOW w AS (PARTITION BY k ORDER BY at, place)"
    )
    links = (
        run_sql(
            table,
            "messages",
            "SELECT source, target, count(*) AS passes, approx_distinct(k) AS keys, "
            "approx_percentile_cont(delay, 0.5) AS median, approx_percentile_cont(delay, 0.95) AS p95, "
            "count(*) OVER () AS links "
            f"FROM ({following}) WHERE target IS NOT NULL AND target <> source AND delay <= {longest} "
            f"GROUP BY source, target ORDER BY passes DESC, source, target LIMIT {limit}",
            sorts_large_result=True,
        )
        .read_all()
        .to_pylist()
    )
    found = links[0]["links"] if links else 0
    return TopicGraph(
        start,
        end,
        [TopicNode(row["topic"], row["records"], row["keys"]) for row in topics.to_pylist()],
        [
            TopicLink(row["source"], row["target"], row["passes"], min(row["keys"], row["passes"]),
                      row["median"] * _MICROSECOND, row["p95"] * _MICROSECOND)
            for row in links
        ],
        max(0, found - len(links)),
    )  # fmt: skip


def complete_time_range(
    lake: Lake, start: datetime.datetime | None, end: datetime.datetime | None
) -> tuple[datetime.datetime, datetime.datetime]:
    """Return the requested time range, in which a missing start or end is set to cover the last day with messages.

    Args:
        start: Start of the range, if it is given.
        end: End of the range, if it is given.
    """
    if end is None:
        sql = f"SELECT max(store_timestamp) AS newest FROM messages WHERE {plausible_time_condition('store_timestamp')}"
        newest = run_sql(lake.table("messages"), "messages", sql).read_all().column("newest")[0].as_py()
        end = EPOCH + _DAY if newest is None else newest + MILLISECOND
    return start if start is not None else end - _DAY, end
