"""Finds messages of a replay in the target: by the properties that a replay adds, or by the rows of `replay_messages`.

Their offsets are kept as runs of consecutive offsets for each queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import MAX_EMPTY_ANSWERS
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.origin_properties import ORIGIN_BROKER, ORIGIN_PHYSICAL_OFFSET, REPLAY_ID
from commitlake.pipelines.replay.plan import ReplayPlan
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.routes import MessageQueue

_MAX_OFFSET = 2**63 - 1
_MESSAGES = 256


class Origin(NamedTuple):
    """Store and physical offset of the original of a message that was sent again."""

    broker: str
    physical_offset: int


def find_sent_messages(
    puller: Puller, queue: MessageQueue, start_offset: int, replay_id: str
) -> Iterator[tuple[Origin, Message]]:
    """Yield a replay's messages in a queue, from a queue offset to the queue's end.

    Args:
        queue: queue of the target.
        start_offset: the first queue offset to read.

    Raises:
        ReplayError: if the queue ends before `start_offset`, so that it is no longer the same queue.
        RocketMQError: in the cases of `Puller.read`.
    """
    end = puller.max_offset(queue)
    if end < start_offset:
        raise ReplayError(
            f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name} ends at queue offset {end}, but ended at "
            f"{start_offset} before: the topic was deleted and created again, or the broker has lost messages. Plan a "
            "new replay",
            exit_code=ExitCode.REFUSED,
        )
    empty = 0
    while start_offset < end:
        result = puller.pull(queue, start_offset, max_messages=_MESSAGES)
        empty = 0 if result.messages else empty + 1
        # A queue that cannot be read must not look like one without messages.
        if result.next_offset <= start_offset or empty > MAX_EMPTY_ANSWERS:
            raise ProtocolError(
                f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: expected messages from queue offset "
                f"{start_offset} to {end}, but the broker answered {result.status.name}"
            )
        for message in result.messages:
            origin = origin_of(message, replay_id)
            if origin is not None:
                if not 0 <= message.queue_offset <= MAX_QUEUE_OFFSET:
                    raise ProtocolError(
                        f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: expected a message with "
                        f"queue offset {start_offset} or later, found one with {message.queue_offset}"
                    )
                yield origin, message
        start_offset = result.next_offset


def origin_of(message: Message, replay_id: str) -> Origin | None:
    """Return the origin that a replay wrote into a message; None if the message is not of this replay."""
    properties = message.properties
    if properties.get(REPLAY_ID) != replay_id:
        return None
    offset = parse_int(properties.get(ORIGIN_PHYSICAL_OFFSET, ""), 0, _MAX_OFFSET)
    broker = properties.get(ORIGIN_BROKER)
    return None if offset is None or broker is None else Origin(broker, offset)


class OffsetRun(NamedTuple):
    """Consecutive queue offsets, from `start` to before `end`, that all have messages of one replay."""

    start: int
    end: int


RunsByQueue = dict[MessageQueue, list[OffsetRun]]


def read_sent_runs(lake: Lake, replay_id: str) -> RunsByQueue:
    """Return the queue offsets at which a replay's messages were stored, as runs, from `replay_messages`."""
    table = lake.find("replay_messages")
    if table is None:
        return {}
    queue = "target_topic, target_broker, target_queue_id"
    numbered = (
        f"SELECT {queue}, target_offset, "
        f"target_offset - row_number() OVER (PARTITION BY {queue} ORDER BY target_offset) AS run "
        f"FROM replay_messages WHERE replay_id = {text_literal(replay_id)} AND target_offset IS NOT NULL"
    )
    sql = (
        f"SELECT {queue}, min(target_offset) AS first, max(target_offset) + 1 AS next_offset FROM ({numbered}) "
        f"GROUP BY {queue}, run ORDER BY {queue}, first"
    )
    runs: RunsByQueue = {}
    for row in rows_to_dicts(run_sql(table, "replay_messages", sql).read_all()):
        place = MessageQueue(row["target_topic"], row["target_broker"], row["target_queue_id"])
        runs.setdefault(place, []).append(OffsetRun(row["first"], row["next_offset"]))
    return runs


def add_unrecorded_runs(
    recorded_runs: Mapping[MessageQueue, Sequence[OffsetRun]], plan: ReplayPlan, puller: Puller
) -> RunsByQueue:
    """Add the offsets of messages that a replay sent but did not record, found in the target queues.

    Args:
        recorded_runs: From `read_sent_runs`.

    Raises:
        ReplayError: A queue ends before the recorded messages.
    """
    found: RunsByQueue = {queue: list(known) for queue, known in recorded_runs.items()}
    for target in plan.target.queues:
        queue = MessageQueue(target.topic, target.broker, target.queue_id)
        known = found.get(queue, [])
        start = known[-1].end if known else target.offset
        offsets = (message.queue_offset for _, message in find_sent_messages(puller, queue, start, plan.replay_id))
        known = join_offset_runs([*known, *(OffsetRun(offset, offset + 1) for offset in offsets)])
        if known:
            found[queue] = known
    return found


def join_offset_runs(runs: Iterable[OffsetRun]) -> list[OffsetRun]:
    """Join runs of offsets that follow each other without a gap; they must be in ascending order."""
    found: list[OffsetRun] = []
    for run in runs:
        if found and found[-1].end == run.start:
            found[-1] = OffsetRun(found[-1].start, run.end)
        else:
            found.append(run)
    return found
