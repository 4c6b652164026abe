"""Sends a replay by several tasks at a time, as on Spark's executors.

    driver:  divide the target's queues → take the replay over → run a task for each share → record the end
    task:    claim the share → wait for what an earlier task of it may still send → send, as one process does

Each queue of the target belongs to one task of a run, which sends the queue's messages by `share_sender`, as a process
does that sends alone. So their order is the same. Nothing is exchanged between driver and tasks except through the lake
and the broker, so the same holds on any cluster:

- **Ledger.** Each task adds its own rows to `replay_messages`, by compare-and-set on the transaction number of its
  share. The driver raises the numbers of the replay and of all shares, also of earlier runs, in one commit when it
  takes the replay over; a task raises the number of its share when it starts. From then on no earlier driver or task
  can add rows.
- **A task that is started again**, because its executor was lost, or seems to be, may have a predecessor that still
  sends. Every connection is registered at the broker before it is used, under an id with the replay, the run and the
  share. A task opens a connection, and then checks in the ledger that its share is still its own, before it sends.
  Its successor claims the share, and then asks the broker for connections until none is left of the share, or of
  earlier runs. Either the old task registered a connection before the claim: then the successor waits until the broker
  has none of it. Or it registers one after the claim: then its check fails. So nothing of it arrives any more when the
  successor searches the queues for messages without rows, before it sends the first one. The old task ends when it next
  adds rows, or looks for requests.
- **A driver that ends** leaves tasks that Spark ends sooner or later. 'replay resume' waits for them in the same way,
  also if it runs without Spark, or with another number of tasks. It continues in each queue where that queue's rows
  end, because its tasks have reached different parts of the plan.
- **Stop and throttle** are rows of `replays`. Each task reads them every two seconds, as a single process does. A task
  that cannot continue requests a stop, so that the others end, too.
- **Rate.** Each task may use a fixed part of the rate, proportional to its messages where these are known. So the rate
  is never exceeded; when a task ends before others, its part is not used.
- **Progress** is what the ledger has. All tasks together commit to it about twice a second, so that a table in an
  object store can take the commits of many. What a task has sent and not recorded, its successor finds in the target.

An error of the replay is a task's result, because Spark would start a task that fails again.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.pack_stores import open_pack_store
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnections
from commitlake.connectors.runtime.runner import SharedValue
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.ledger import Counts, Ledger, SenderClaim, add_replay_event, read_replay_state
from commitlake.pipelines.replay.plan import QueueMapping, ReplayPlan
from commitlake.pipelines.replay.planned_messages import PlannedMessages, open_planned_messages
from commitlake.pipelines.replay.planning import count_messages_by_queue, target_queue_indexes
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.pipelines.replay.sending.replay_control import run_beside, watch_replay
from commitlake.pipelines.replay.sending.share_sender import ShareSender
from commitlake.pipelines.replay.sending.target_client import open_target_client
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.rocketmq.topics import Kind, kind_of
from commitlake.schemas.tables.replays import ReplayEvent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_SECONDS = 1.0
COMMITS_PER_SECOND = 2.0
"""Number of commits to the ledger by all tasks of a run together."""
_COUNT_LOOKS = 3
"""Number of looks after which the messages in the ledger are counted."""


@dataclass(frozen=True, slots=True)
class QueueShare:
    """Queues of the target to which one task sends.

    Attributes:
        queues: indexes of the plan's queues.
        part: part of the rate that the task may use.
    """

    queues: tuple[int, ...]
    part: float


@dataclass(frozen=True, slots=True)
class SendingTask:
    """Task that sends the messages for some queues of the target.

    Attributes:
        lake: the lake.
        plan: the plan, whose rate and lag limit are those of the whole replay.
        share: the queues.
        claim: right to claim the share in the ledger.
        name_servers: name servers of the target.
        ledger_seconds: least time between two of the task's commits to the ledger.
        target_timeout: time for which the target may not answer, or may refuse everything.
        is_resumed: True if a process has begun to send before this run.
        has_lost_rows: True if the ledger may lack rows.
    """

    lake: Lake
    plan: SharedValue[ReplayPlan]
    share: QueueShare
    claim: SenderClaim
    name_servers: str
    ledger_seconds: float
    target_timeout: datetime.timedelta
    is_resumed: bool
    has_lost_rows: bool


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task that sends messages: whether it is done, or its error.

    Attributes:
        is_done: True if all messages of the share have an outcome.
        error: why it could not continue; None if it could.
    """

    is_done: bool
    error: ReplayError | None = None


def check_no_speculation(spark: SparkSession, prefix: str = "") -> None:
    """Raise an error if Spark may start a second attempt of a running task (speculation), which would send twice.

    Args:
        spark: the session whose tasks are to send.
        prefix: beginning of the message.

    Raises:
        ReplayError: if it does.
    """
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise ReplayError(
            f"{prefix}expected spark.speculation=false, found true: with it, Spark would start second attempts of "
            "tasks, which take the messages over from the first ones again and again",
            hint="set it to false for this job: no message would be sent twice, but the replay would not end",
        )


def divide_queues(messages: PlannedMessages, max_tasks: int) -> list[QueueShare]:
    """Divide the target's queues among tasks so that each task sends about the same number of messages.

    Args:
        messages: Messages of the plan.
        max_tasks: Maximum number of tasks.

    Returns:
        The shares; queues that get no message are in none.
    """
    sizes = _target_queue_sizes(messages)
    total = sum(sizes)
    # The largest first, each to the task with the least so far: a usual way to similar loads.
    largest_first = sorted((number for number, size in enumerate(sizes) if size), key=lambda number: -sizes[number])
    count = min(max_tasks, len(largest_first))
    queues: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for number in largest_first:
        smallest = loads.index(min(loads))
        queues[smallest].append(number)
        loads[smallest] += sizes[number]
    return [QueueShare(tuple(sorted(each)), load / total) for each, load in zip(queues, loads, strict=True)]


def _target_queue_sizes(messages: PlannedMessages) -> list[int]:
    """Return the number of messages for each target queue; 1 for each if the queue depends on keys or properties."""
    plan = messages.plan
    unknown = [1] * len(plan.target.queues)
    if plan.target.mapping is not QueueMapping.SAME:
        return unknown
    choice = count_messages_by_queue(messages.table, plan.condition)
    if plan.target.topic is None and any(kind_of(queue.topic) is not Kind.NORMAL for queue in choice):
        return unknown
    sizes = [0] * len(plan.target.queues)
    for queue, number in zip(choice, target_queue_indexes(choice, plan.target).tolist(), strict=True):
        sizes[number] += queue.messages
    return sizes if any(sizes) else unknown


def send_share(task: SendingTask) -> TaskResult:
    """Send the messages for the queues of one task."""
    ledger = Ledger(task.lake, task.plan.value.replay_id)
    try:
        return TaskResult(_claim_and_send_share(task, ledger))
    except ReplayError as error:
        if not ledger.is_superseded(task.claim):  # or else a stop would be one of the successor
            add_replay_event(task.lake, task.plan.value.replay_id, ReplayEvent.STOPPING, detail=str(error))
        return TaskResult(False, error)


def _claim_and_send_share(task: SendingTask, ledger: Ledger) -> bool:
    lake, plan, claim = task.lake, task.plan.value, task.claim
    is_first = ledger.claim_sender(claim)
    # After the claim: a stop that was requested before it is seen here, a later one by `watch_replay`.
    state = read_replay_state(lake, plan.replay_id)
    if state.wants_stop:
        return False
    pace = SendPace(plan.rate if state.rate is None else state.rate, share=task.share.part)
    messages = open_planned_messages(lake, plan, open_pack_store(lake.packs))
    with (
        open_target_client(task.name_servers) as client,
        TrackedConnections(
            client.producer,
            client.admin,
            plan.replay_id,
            run=str(claim.run),
            share=str(claim.number),
            check_owner=ledger.check_is_owner,
        ) as connections,
        # The driver prints what changes.
        watch_replay(lake, plan.replay_id, pace, client.admin, plan.lag_limit, check_owner=ledger.check_is_owner),
    ):
        sender = ShareSender(
            messages,
            client,
            ledger,
            pace,
            task.target_timeout,
            task.share.queues,
            task.ledger_seconds,
            is_resumed=task.is_resumed or not is_first,
            has_lost_rows=task.has_lost_rows,
        )
        return sender.send(connections)


def follow_tasks(
    lake: Lake, replay_id: str, pace: SendPace, ledger: Ledger, on_progress: Callable[[Counts], None]
) -> AbstractContextManager[None]:
    """Return a context manager that reports the progress of a replay's tasks, and stops them if `pace` is stopped.

    Args:
        pace: A stop of this pace stops the tasks.
        ledger: The ledger that has claimed the replay. Tasks of a process that has taken it over are not stopped.
        on_progress: Called with the numbers of messages in the ledger.
    """
    return run_beside("replay-tasks", partial(_follow_tasks, lake, replay_id, pace, ledger, on_progress))


def _follow_tasks(
    lake: Lake,
    replay_id: str,
    pace: SendPace,
    ledger: Ledger,
    on_progress: Callable[[Counts], None],
    end_event: threading.Event,
) -> None:
    is_requested = False
    looks = 0
    while not end_event.wait(_LOOK_SECONDS):
        with suppress(CommitLakeError, DeltaError, OSError):  # the next look may succeed
            if pace.is_stopped and not is_requested:
                # A driver that has been replaced must not stop its successor.
                ledger.check_is_owner()
                if not read_replay_state(lake, replay_id).wants_stop:
                    add_replay_event(lake, replay_id, ReplayEvent.STOPPING)
                is_requested = True
            looks += 1
            if looks % _COUNT_LOOKS == 0:
                on_progress(ledger.count_sent_and_failed())
