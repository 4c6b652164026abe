"""Chooses messages of a lake to send again, as a condition in SQL.

A message may be in the log several times: as a half message or a delayed one in a topic of the broker, in its own
topic, and as retries and a dead letter of each group that failed on it. Only the record in its own topic is chosen, or
the dead letter if dead letters are asked for, so that each message is sent once. Retries and dead letters are chosen if
their topic is named, or if all copies are asked for. Messages that a replay has sent are chosen only on request. Half
messages and delayed messages that wait are never chosen: they are not, or not yet, messages of their topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from commitlake.connectors.lake.sql import join_with_or, quote_column_name, selection_conditions, text_literal
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.groups.not_consumed_messages import NotConsumed, QueueStart
from commitlake.pipelines.replay.origin_properties import REPLAY_ID
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC, Kind, kind_of
from commitlake.schemas.selection import Selection

SENDABLE = (Kind.NORMAL, Kind.RETRY, Kind.DLQ)


def selection_condition(
    selection: Selection,
    *,
    not_consumed: NotConsumed | None = None,
    includes_replayed: bool = False,
    origin_topic_sql: str | None = None,
) -> str:
    """Return the SQL condition on `messages` for the messages that a replay sends again.

    Its text identifies what was chosen: a notebook recognises an earlier replay of the same messages by it. So the same
    selection must always give the same text, also in later versions.

    Args:
        selection: selected messages. Without kinds and groups, the kinds of the named topics are chosen, or normal
            messages if no topic is named.
        not_consumed: first chosen message of each queue, and topics whose other queues are chosen from their beginning;
            other topics are not chosen. None for all queues from their beginning.
        includes_replayed: True to choose messages that a replay has sent, too.
        origin_topic_sql: SQL for the original topic of a retry or a dead letter, if the named topics are original
            topics; None if they are the topics in which the records are stored.

    Raises:
        ReplayError: if a topic is chosen whose messages cannot be sent again.
    """
    for topic in selection.topics:
        if kind_of(topic) not in SENDABLE:
            raise ReplayError(f"the topic {topic} is a system topic of the broker: its records cannot be sent again")
    texts = (
        ("broker", selection.brokers),
        ("topic", selection.topics if origin_topic_sql is None else ()),
        ("kind", selection.kinds),
    )
    parts = [_is_one_of_sql(column, values) for column, values in texts if values]
    parts += selection_conditions(Selection(queue_ids=sorted(selection.queue_ids), keys=selection.keys))
    times = selection_conditions(Selection(start=selection.start, end=selection.end, is_by_birth=selection.is_by_birth))
    parts += [] if selection.is_by_birth else times
    parts += selection_conditions(Selection(where=selection.where))
    if origin_topic_sql is not None and selection.topics:
        parts.append(
            f"({_is_one_of_sql('topic', selection.topics)} OR {_is_one_of_sql(origin_topic_sql, selection.topics)})"
        )
    parts += times if selection.is_by_birth else []
    if selection.groups:
        parts.append(join_with_or([f"topic = {text_literal(DLQ_PREFIX + group)}" for group in selection.groups]))
    elif not selection.kinds:
        kinds = sorted({kind_of(topic) for topic in selection.topics} or {Kind.NORMAL})
        parts.append(f"kind IN ({', '.join(map(text_literal, kinds))})")
    if not selection.topics:  # archives by older versions have these as normal messages
        parts.append(f"topic NOT IN ({text_literal(ROCKSDB_HALF_TOPIC)}, {text_literal(ROCKSDB_OP_TOPIC)})")
    if selection.tags:
        parts.append(_is_one_of_sql("tags", selection.tags))
    parts += selection_conditions(Selection(ids=selection.ids))
    if not_consumed is not None:
        parts.append(_not_consumed_sql(not_consumed))
    if not includes_replayed:
        parts.append(f"NOT array_contains(map_keys({quote_column_name('properties')}), {text_literal(REPLAY_ID)})")
    return " AND ".join(parts)


def _is_one_of_sql(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(map(text_literal, values))})"


def _not_consumed_sql(not_consumed: NotConsumed) -> str:
    """Return the SQL condition for the messages that a consumer group has not consumed."""
    known: dict[tuple[str, str], list[int]] = {place: [] for place in sorted(not_consumed.topics)}
    parts = []
    for (broker, topic, queue_id), start in sorted(not_consumed.queues.items()):
        if (broker, topic) in known:
            known[broker, topic].append(queue_id)
        parts.append(
            f"({_topic_condition_sql(broker, topic)} AND queue_id = {queue_id} AND {_from_queue_start_sql(start)})"
        )
    parts += [
        f"({_topic_condition_sql(broker, topic)}"
        + (f" AND queue_id NOT IN ({', '.join(map(str, queue_ids))})" if queue_ids else "")
        + ")"
        for (broker, topic), queue_ids in known.items()
    ]
    return join_with_or(parts)


def _from_queue_start_sql(queue_start: QueueStart) -> str:
    since = f"queue_offset >= {queue_start.offset}"
    if queue_start.restart is not None:
        since = f"(queue_offset >= {queue_start.offset} OR physical_offset >= {queue_start.restart})"
    return f"{since} AND physical_offset >= {queue_start.floor}" if queue_start.floor else since


def _topic_condition_sql(broker: str, topic: str) -> str:
    return f"broker = {text_literal(broker)} AND topic = {text_literal(topic)}"
