"""Dead letters of a lake, counted and grouped by cause.

A message is a dead letter in the topic `%DLQ%group`, once its consumer group has failed as often as it may. RocketMQ
does not store why a consumer failed. What is known, and makes a cause here, is the group, the topic that the message
was sent to, its tag, the number of attempts, and the text of a property where a client sets one of
`EXCEPTION_PROPERTIES`. JMQ keeps dead letters in a database of its own, so that its journal, and the lake, have none.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import NoTableError, open_table, run_sql
from commitlake.connectors.lake.sql import Engine, text_literal
from commitlake.pipelines.query.sql import Conditions, predicates
from commitlake.schemas.layouts.rocketmq.properties import RETRY_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, Kind

EXCEPTION_PROPERTIES = ("EXCEPTION", "exception", "ERROR", "error")
"""Properties in which clients state why they failed, by precedence; none of them is RocketMQ's own."""
ORIGIN_TOPIC = "origin_topic"
MAX_CAUSES = 1000
"""Causes that an answer has at most; the largest."""
MAX_REASON_LENGTH = 200
"""Characters of an exception's text that tell causes apart: what follows is often a stack trace with ids."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Dead letters that have one cause.

    Attributes:
        group: The group that failed.
        topic: Where the messages were sent; None where no property tells.
        tag: Their tag; None where they have none.
        attempts: How often they were consumed, the first time included.
        reason: What the client says; None where it says nothing.
        messages: How many dead letters there are.
        first: When the first of them was stored.
        last: And the last.
        example: Message id of the newest one, for `commitlake query --id`.
    """

    group: str
    topic: str | None
    tag: str | None
    attempts: int
    reason: str | None
    messages: int
    first: datetime.datetime
    last: datetime.datetime
    example: str


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Dead letters by cause.

    Attributes:
        causes: The largest first; at most `MAX_CAUSES`.
        messages: How many dead letters there are, those of causes that are left out included.
    """

    causes: Sequence[Cause]
    messages: int


@dataclass(frozen=True, slots=True)
class GroupCount:
    """Dead letters of one group in one store."""

    broker: str
    group: str
    messages: int


def group_by_cause(
    lake: LakePaths,
    *,
    groups: Sequence[str] = (),
    brokers: Sequence[str] = (),
    start: datetime.datetime | None = None,
    end: datetime.datetime | None = None,
) -> DeadLetters:
    """Group the dead letters of a lake by cause.

    Args:
        lake: Where the tables lie.
        groups: Only these; all where empty.
        brokers: Only these stores; all where empty.
        start: Only dead letters that were stored then or later.
        end: And before this time.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
    """
    table = open_table(lake, "messages")
    conditions = Conditions(
        topics=[DLQ_PREFIX + group for group in groups], kinds=[Kind.DLQ], brokers=brokers, start=start, end=end
    )
    where = " AND ".join(predicates(conditions, Engine.DELTALAKE))
    reason = ", ".join(f"properties[{text_literal(name)}]" for name in EXCEPTION_PROPERTIES)
    keys = "topic, origin, tags, reconsume_times, reason"
    sql = (
        f"SELECT {keys}, count(*) AS messages, sum(count(*)) OVER () AS total, "
        "min(store_timestamp) AS first, max(store_timestamp) AS last, "
        "first_value(msg_id ORDER BY store_timestamp DESC, physical_offset DESC) AS example FROM "
        f"(SELECT *, {_origin(table)} AS origin, "
        f"left(coalesce({reason}), {MAX_REASON_LENGTH}) AS reason FROM messages WHERE {where}) "
        f"GROUP BY {keys} ORDER BY messages DESC, {keys} LIMIT {MAX_CAUSES}"
    )
    rows = run_sql(table, "messages", sql).read_all().to_pylist()
    causes = [
        Cause(
            group=row["topic"].removeprefix(DLQ_PREFIX),
            topic=row["origin"],
            tag=row["tags"],
            attempts=row["reconsume_times"],
            reason=row["reason"],
            messages=row["messages"],
            first=row["first"],
            last=row["last"],
            example=row["example"],
        )
        for row in rows
    ]
    return DeadLetters(causes, rows[0]["total"] if rows else 0)


def _origin(table: DeltaTable) -> str:
    """Return SQL for the topic that a message was sent to; rows of earlier versions have no column of it."""
    named = f"properties[{text_literal(RETRY_TOPIC)}]"
    if ORIGIN_TOPIC not in {field.name for field in table.schema().fields}:
        return named
    return f"nullif(coalesce({ORIGIN_TOPIC}, {named}), topic)"


def count_by_group(lake: LakePaths) -> list[GroupCount]:
    """Count the dead letters of each group and store, from `topic_minutes`, which is small.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
    """
    try:
        table = open_table(lake, "topic_minutes")
    except NoTableError:
        return []
    sql = (
        "SELECT broker, topic, sum(messages) AS messages FROM topic_minutes "
        f"WHERE kind = {text_literal(Kind.DLQ)} GROUP BY broker, topic ORDER BY broker, topic"
    )
    rows = run_sql(table, "topic_minutes", sql).read_all().to_pylist()
    return [GroupCount(row["broker"], row["topic"].removeprefix(DLQ_PREFIX), row["messages"]) for row in rows]
