"""Makes the plan of a replay and records it.

count the chosen messages → find the target's queues → divide the messages into parts → find other replays of them
→ write changed or copied messages to `replay_rows` → record the plan
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.errors import NoRouteError, RefusedError
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.origin_properties import original_topic_sql
from commitlake.pipelines.replay.other_replays import OtherReplay, find_other_replays, record_plan
from commitlake.pipelines.replay.plan import LogRange, QueueEnd, QueueMapping, ReplayPlan, ReplayRequest, Target
from commitlake.pipelines.replay.planned_messages import IS_FLAGGED, changed_rows_condition, count_further_messages
from commitlake.pipelines.replay.queue_mapping import target_queues
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from commitlake.schemas.remoting.routes import MessageQueue, publish_queues
from commitlake.schemas.times import EPOCH

STRETCH_BYTES = 16 << 20
"""Size of the log range of the smallest part. All messages of a part are in memory at the same time."""
PART_BYTES = 16 << 20
PART_MESSAGES = 50_000
DEFAULT_BATCH_BYTES = 512 << 10
MAX_WINDOWS = 60
_STEPS = tuple(
    datetime.timedelta(seconds=seconds)
    for seconds in (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10_800, 21_600, 86_400, 604_800, 2_592_000, 31_536_000)
)
_MICROSECOND = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class QueueCount:
    """Number, size, offsets and times of the chosen messages of one queue.

    Attributes:
        broker: name of the store.
        topic: topic that stores the messages.
        queue_id: queue that stores the messages.
        messages: number of chosen messages.
        bytes: size of their stored records.
        first_offset: queue offset of the first one.
        last_offset: queue offset of the last one.
        first_at: store time of the first one; None if none has a store time.
        last_at: store time of the last one; likewise.
    """

    broker: str
    topic: str
    queue_id: int
    messages: int
    bytes: int
    first_offset: int
    last_offset: int
    first_at: datetime.datetime | None
    last_at: datetime.datetime | None


def count_messages_by_queue(table: DeltaTable, condition: str) -> list[QueueCount]:
    """Count the chosen messages by queue, including those in inner batches.

    Args:
        condition: from `selection.selection_condition`.

    Raises:
        QueryError: if the table cannot be read, or the condition is invalid.
    """
    sql = (
        "SELECT broker, topic, queue_id, count(*) AS messages, sum(size) AS bytes, min(queue_offset) AS first_offset, "
        "max(queue_offset) AS last_offset, min(store_timestamp) AS first_at, max(store_timestamp) AS last_at, "
        f"{_FLAGGED} FROM messages WHERE {condition} GROUP BY broker, topic, queue_id ORDER BY broker, topic, queue_id"
    )
    queues = list(rows_to_dicts(run_sql(table, "messages", sql).read_all()))
    is_flagged = [row.pop("flagged") > 0 for row in queues]
    # Counted by another query, which reads properties; most lakes have no inner batches.
    more = count_further_messages(table, condition, "broker, topic, queue_id") if any(is_flagged) else {}
    for row in queues:
        further = more.get((row["broker"], row["topic"], row["queue_id"]), 0)
        row["messages"] += further
    return [QueueCount(**row) for row in queues]


def divide_into_parts(table: DeltaTable, condition: str) -> list[tuple[LogRange, ...]]:
    """Divide the chosen messages into parts to send one after another, each given by ranges of the logs.

    A part is as large as a process may hold in memory. Ranges of one store are in the order of its log, and those of
    several stores in the order of their times.

    Raises:
        QueryError: in the cases of `count_messages_by_queue`.
    """
    sql = (
        f"SELECT broker, physical_offset / {STRETCH_BYTES} AS stretch, min(physical_offset) AS first, "
        "max(physical_offset) AS last, count(*) AS messages, sum(size) AS bytes, max(store_timestamp) AS last_at, "
        f"{_FLAGGED} FROM messages WHERE {condition} GROUP BY 1, 2 ORDER BY 1, 2"
    )
    stretches = list(rows_to_dicts(run_sql(table, "messages", sql).read_all()))
    if any(row["flagged"] for row in stretches):
        more = count_further_messages(table, condition, f"broker, physical_offset / {STRETCH_BYTES}")
        for row in stretches:
            row["messages"] += more.get((row["broker"], row["stretch"]), 0)
    return list(_join_ranges_into_parts(_sort_ranges_by_time(stretches)))


_FLAGGED = f"sum(CASE WHEN {IS_FLAGGED} THEN 1 ELSE 0 END) AS flagged"


class _SizedRange(NamedTuple):
    where: LogRange
    messages: int
    bytes: int


def _sort_ranges_by_time(rows: Iterable[dict[str, Any]]) -> list[_SizedRange]:
    """Sort log ranges by store time, keeping the ranges of each store in log order even if its clock was wrong."""
    newest: dict[str, datetime.datetime] = {}
    found = []
    for row in rows:
        broker, last_at = row["broker"], row["last_at"] or EPOCH
        # So a wrong clock never changes the order of messages of one store.
        newest[broker] = max(newest.get(broker, last_at), last_at)
        where = LogRange(broker, row["first"], row["last"] + 1)
        found.append((newest[broker], _SizedRange(where, row["messages"], row["bytes"])))
    return [stretch for _, stretch in sorted(found)]


def _join_ranges_into_parts(sized_ranges: Iterable[_SizedRange]) -> Iterator[tuple[LogRange, ...]]:
    ranges: list[LogRange] = []
    messages = size = 0
    for where, more, more_bytes in sized_ranges:
        if ranges and (size + more_bytes > PART_BYTES or messages + more > PART_MESSAGES):
            yield tuple(ranges)
            ranges, messages, size = [], 0, 0
        if ranges and ranges[-1].broker == where.broker:
            ranges[-1] = ranges[-1]._replace(end=where.end)  # nothing is chosen between them
        else:
            ranges.append(where)
        messages += more
        size += more_bytes
    if ranges:
        yield tuple(ranges)


def _find_target(
    client: TargetClient,
    table: DeltaTable,
    condition: str,
    queue_counts: Sequence[QueueCount],
    request: ReplayRequest,
) -> Target:
    """Return the target of a replay, with its queues and their current end offsets.

    Raises:
        ReplayError: if it lacks a topic or a queue, or if a topic is none of applications, or is not known.
        RocketMQError: if it does not answer.
        QueryError: in the cases of `count_messages_by_queue`.
    """
    if request.target_topic is not None:
        topics = {request.target_topic}
    else:
        stored = {queue.topic for queue in queue_counts}
        topics = {topic for topic in stored if kind_of(topic) is Kind.NORMAL} | _find_original_topics(table, condition)
    for topic in topics:
        if kind_of(topic) is not Kind.NORMAL:
            raise ReplayError(f"{topic} is a system topic of the broker: messages cannot be sent to it")
    queues = tuple(queue for topic in sorted(topics) for queue in _read_queue_ends(client, topic))
    target = Target(request.name_servers or "", request.target_topic, request.mapping, queues)
    if target.mapping is QueueMapping.SAME:
        # Dead letters and retries that go to their original topics are only checked when they are sent.
        target_queue_indexes(
            [queue for queue in queue_counts if target.topic is not None or kind_of(queue.topic) is Kind.NORMAL], target
        )
    return target


def _find_original_topics(table: DeltaTable, condition: str) -> set[str]:
    """Return the topics to which the chosen dead letters and retries were originally sent.

    Raises:
        QueryError: in the cases of `count_messages_by_queue`.
        ReplayError: if the original topic of one of them is not known.
    """
    failed = f"kind IN ('{Kind.DLQ}', '{Kind.RETRY}')"
    sql = (
        f"SELECT {original_topic_sql(table)} AS origin, count(*) AS messages, min(msg_id) AS msg_id FROM messages "
        f"WHERE {condition} AND {failed} GROUP BY 1"
    )
    found = list(rows_to_dicts(run_sql(table, "messages", sql).read_all()))
    for row in found:
        if row["origin"] is None:
            raise ReplayError(
                f"the original topic of {format_count(row['messages'], 'message')} is not known, such as of "
                f"{row['msg_id']}: give a topic with --to-topic, or leave these messages out with --where"
            )
    return {row["origin"] for row in found}


def _read_queue_ends(client: TargetClient, topic: str) -> list[QueueEnd]:
    """Return the queues of a topic that accept messages, with their current end offsets."""
    try:
        queues = publish_queues(topic, client.puller.routing.route(topic))
    except NoRouteError:
        _check_has_brokers(client)
        raise ReplayError(
            f"the target has no topic {topic}: create it with as many queues as needed (mqadmin updateTopic), "
            "or send to another one with --to-topic",
            exit_code=ExitCode.REFUSED,
        ) from None
    if not queues:
        raise ReplayError(
            f"the target's topic {topic} has no queue that can be written to: check its permission",
            exit_code=ExitCode.REFUSED,
        )
    # Whatever is at or after these ends may be of this replay, and nothing before them is.
    return [QueueEnd(topic, queue.broker_name, queue.queue_id, client.puller.max_offset(queue)) for queue in queues]


def _check_has_brokers(client: TargetClient) -> None:
    """Raise an error if the target's name server knows no broker."""
    with suppress(RefusedError):
        if not client.admin.clusters().broker_addr_table:
            raise ReplayError(
                "the target's name server knows no broker now, and so no topic: is the broker running?",
                exit_code=ExitCode.FAILED,
                is_transient=True,
            )


def target_queue_indexes(queue_counts: Sequence[QueueCount], target: Target) -> Array:
    """Return, for each queue of the lake, the index of the target queue with the same number.

    Args:
        queue_counts: from `count_messages_by_queue`; without dead letters and retries if each goes to its original
            topic.

    Raises:
        ReplayError: names the first missing queue.
    """
    rows = pa.table(
        {
            "broker": [queue.broker for queue in queue_counts],
            "queue_id": pa.array([queue.queue_id for queue in queue_counts], "int32"),
        }
    )
    topics = pa.array([target.topic or queue.topic for queue in queue_counts], pa.string())
    return target_queues(rows, topics, target, [MessageQueue(*queue[:3]) for queue in target.queues])


def new_replay_id(now: datetime.datetime) -> str:
    """Return a unique id for a replay, which begins with the given time."""
    return f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def plan_replay(
    lake: Lake,
    table: DeltaTable,
    condition: str,
    queue_counts: Sequence[QueueCount],
    request: ReplayRequest,
    client: TargetClient | None,
    command: str,
    *,
    on_unreadable: Callable[[str, ReplayError], None] = lambda *_: None,
) -> tuple[ReplayPlan, list[OtherReplay]]:
    """Return the plan of a new replay, and other replays of the same messages to the same queues.

    Nothing is written: `record_replay` does, once the plan is accepted.

    Args:
        lake: the lake with the ledger.
        table: the table `messages`, of the lake or copied.
        condition: from `selection.selection_condition`.
        queue_counts: from `count_messages_by_queue`.
        client: client of the target; None for a plan without a target, which is only shown.
        command: the selection in words.
        on_unreadable: called with the id of each replay in the ledger that cannot be read.

    Raises:
        ReplayError: if the messages cannot be sent to the target.
        RocketMQError: if the target does not answer.
    """
    now = datetime.datetime.now(datetime.UTC)
    nowhere = Target("", None, request.mapping, ())
    target = nowhere if client is None else _find_target(client, table, condition, queue_counts, request)
    plan = ReplayPlan(
        replay_id=request.name or new_replay_id(now),
        created_at=now,
        condition=condition,
        parts=tuple(divide_into_parts(table, condition)),
        messages=sum(queue.messages for queue in queue_counts),
        bytes=sum(queue.bytes for queue in queue_counts),
        limit=request.limit,
        target=target,
        batch_bytes=DEFAULT_BATCH_BYTES,
        command=command,
        selection=condition,
        rate=request.rate or 0.0,
        speed=request.speed or 0.0,
        lag_limit=request.lag_limit,
    )
    return plan, [] if client is None else find_other_replays(lake, plan, table, on_unreadable=on_unreadable)


def record_replay(
    lake: Lake,
    plan: ReplayPlan,
    table: DeltaTable,
    accepted_replays: Collection[OtherReplay],
    write_rows: Callable[[], None] | None = None,
    *,
    is_copied: bool = False,
) -> ReplayPlan:
    """Record a new replay, so that it can be sent, and continued after a crash.

    Args:
        plan: the plan, from `plan_replay`.
        table: the table by which it was made.
        accepted_replays: other replays of the same messages that are accepted.
        write_rows: writes the messages to `replay_rows`, if they are not sent as the lake has them.
        is_copied: True if the table was copied, and is deleted later.

    Returns:
        The plan as recorded. If `replay_rows` has no message to send, there are none in the plan, and it is not
        recorded.

    Raises:
        ReplayError: if another process has just planned to send the same messages; nothing is sent.
    """
    recorded = plan
    if write_rows is not None:
        # Before the plan: whatever plan is recorded can be sent, also after a crash between the two.
        write_rows()
        recorded = _plan_changed_messages(plan, lake.table("replay_rows"))
        recorded = replace(recorded, selection="") if is_copied else recorded
    if recorded.messages:
        record_plan(lake, recorded, table, accepted_replays, plan.selection)
    return recorded


def _plan_changed_messages(plan: ReplayPlan, changed_rows_table: DeltaTable) -> ReplayPlan:
    """Return the plan for sending the messages that were changed and written to `replay_rows`.

    Args:
        plan: the plan by which they were written; its limit has been applied.
        changed_rows_table: the table `replay_rows`.
    """
    condition = changed_rows_condition(plan.replay_id)
    choice = count_messages_by_queue(changed_rows_table, condition)
    return replace(
        plan,
        condition=condition,
        parts=tuple(divide_into_parts(changed_rows_table, condition)),
        messages=sum(queue.messages for queue in choice),
        bytes=sum(queue.bytes for queue in choice),
        limit=0,
        is_changed=True,
    )


@dataclass(frozen=True, slots=True)
class CountsOverTime:
    """Numbers of messages by time window and topic.

    Attributes:
        step: length of a window.
        starts: starts of all windows from the first to the last message, in order.
        messages: by topic, the number of messages stored in each window.
    """

    step: datetime.timedelta
    starts: Sequence[datetime.datetime]
    messages: dict[str, list[int]]


def count_over_time(table: DeltaTable, condition: str, queue_counts: Sequence[QueueCount]) -> CountsOverTime:
    """Count the chosen messages by time window of their store time, in at most `MAX_WINDOWS` windows.

    Messages without a store time are not counted.

    Args:
        condition: condition of the chosen messages.
        queue_counts: the chosen messages by queue.

    Raises:
        QueryError: in the cases of `count_messages_by_queue`.
    """
    times = [moment for queue in queue_counts for moment in (queue.first_at, queue.last_at) if moment is not None]
    if not times:
        return CountsOverTime(_STEPS[0], (), {})
    first, last = min(times), max(times)
    # One window less, because windows begin at whole steps, and the first and last one may be cut.
    step = next((step for step in _STEPS if (last - first) < step * (MAX_WINDOWS - 1)), _STEPS[-1])
    begin, end = (first - EPOCH) // step, (last - EPOCH) // step
    sql = (
        f"SELECT topic, arrow_cast(store_timestamp, 'Int64') / {step // _MICROSECOND} AS place, count(*) AS messages "
        f"FROM messages WHERE {condition} AND store_timestamp IS NOT NULL GROUP BY 1, 2 ORDER BY 1, 2"
    )
    found: dict[str, list[int]] = {}
    for row in rows_to_dicts(run_sql(table, "messages", sql).read_all()):
        counts = found.setdefault(row["topic"], [0] * (end - begin + 1))
        counts[row["place"] - begin] += row["messages"]
    return CountsOverTime(step, [EPOCH + place * step for place in range(begin, end + 1)], found)
