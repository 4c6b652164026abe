"""Offsets of a replay's messages in the target, as runs of consecutive offsets for each queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.plain_arrays import dict_rows
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.pipelines.replay.plan import ReplayPlan
from commitlake.pipelines.replay.search import find_sent
from commitlake.schemas.remoting.routes import MessageQueue


class Run(NamedTuple):
    """Consecutive offsets of a queue, from `start` to before `end`, all of them of the replay."""

    start: int
    end: int


Runs = dict[MessageQueue, list[Run]]


def read_sent_runs(lake: Lake, replay_id: str) -> Runs:
    """Return the runs in `replay_messages`.

    Raises:
        QueryError: The table cannot be read.
    """
    try:
        table = lake.table("replay_messages")
    except NoTableError:
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
    runs: Runs = {}
    for row in dict_rows(run_sql(table, "replay_messages", sql).read_all()):
        place = MessageQueue(row["target_topic"], row["target_broker"], row["target_queue_id"])
        runs.setdefault(place, []).append(Run(row["first"], row["next_offset"]))
    return runs


def with_unwritten(runs: Mapping[MessageQueue, Sequence[Run]], plan: ReplayPlan, puller: Puller) -> Runs:
    """Add messages that a replay sent but did not record before its process ended; reads the target.

    Args:
        runs: From `read_sent_runs`.

    Raises:
        TargetError: A queue ends before the recorded messages.
        RocketMQError: The target does not answer.
    """
    found: Runs = {queue: list(known) for queue, known in runs.items()}
    for target in plan.target.queues:
        queue = MessageQueue(target.topic, target.broker, target.queue_id)
        known = found.get(queue, [])
        start = known[-1].end if known else target.offset
        offsets = (message.queue_offset for _, message in find_sent(puller, queue, start, plan.replay_id))
        known = joined([*known, *(Run(offset, offset + 1) for offset in offsets)])
        if known:
            found[queue] = known
    return found


def joined(runs: Iterable[Run]) -> list[Run]:
    """Join runs that touch; they must be in ascending order."""
    found: list[Run] = []
    for run in runs:
        if found and found[-1].end == run.start:
            found[-1] = Run(found[-1].start, run.end)
        else:
            found.append(run)
    return found
