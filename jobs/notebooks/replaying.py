"""A replay in one call for notebooks, and the state of its messages in consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.packs.stores import open_store
from commitlake.jobs.notebooks.notebook import NotebookError
from commitlake.jobs.replay.target import target_client
from commitlake.pipelines.replay.groups.outcomes import GroupFollower, GroupOutcomes, read_sent
from commitlake.pipelines.replay.ledger import Counts, Ledger, read_states
from commitlake.pipelines.replay.other_replays import announce, check_unfinished, find_others
from commitlake.pipelines.replay.pace import Pace
from commitlake.pipelines.replay.plan import QueueMapping, ReplayPlan, Target
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.pipelines.replay.planning import (
    QueueChoice,
    check_queue_numbers,
    cut_parts,
    make_plan,
    origin_topics,
    target_queue_ends,
    topics_of,
)
from commitlake.pipelines.replay.run import ReplayRun, Settings
from commitlake.pipelines.replay.verifying import verify_replay
from commitlake.schemas.counts import count_text
from commitlake.schemas.tables.replays import ReplayEvent


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay in a notebook.

    Attributes:
        plan: plan of the replay.
        counts: numbers of sent messages, and of messages that could not be sent.
        groups: state of the messages in each group that consumes their topics.
        is_new: whether this run has sent them; else an earlier run of the notebook has.
    """

    plan: ReplayPlan
    counts: Counts
    groups: Sequence[GroupOutcomes]
    is_new: bool


def replay(
    lake: Lake,
    table: DeltaTable,
    condition: str,
    choice: Sequence[QueueChoice],
    *,
    name_servers: str,
    topic: str | None = None,
    rate: float | None = None,
    is_again: bool = False,
) -> Replayed | None:
    """Send messages unless an earlier replay sent the same ones, and measure how far groups consumed them.

    Args:
        table: the lake's table `messages`.
        condition: SQL condition for the messages.
        choice: the same condition, by queue.
        name_servers: name servers of the target, `host:port` of each, separated by semicolons; empty to send nothing.
        topic: target topic of all messages; None for the topic that each was first sent to.
        rate: the largest number of messages per second; None for no limit.
        is_again: whether to send messages that an earlier replay has sent.

    Returns:
        The result of the replay; None if there are no messages, or no name servers.

    Raises:
        NotebookError: if an earlier replay of the same messages has not finished, or if the messages that are read back
            from the target differ from those that were sent.
        ReplayError: if they cannot be sent.
        RocketMQError: if the target does not answer.
    """
    if not name_servers or not choice:
        return None
    earlier = None if is_again else _earlier(lake, condition, name_servers, topic)
    with target_client(name_servers) as client:
        if earlier is not None:
            plan, counts = earlier, Ledger(lake, earlier.replay_id).counts()
        else:
            origins = origin_topics(table, condition) if topic is None else []
            queues = target_queue_ends(client, topics_of(choice, topic, origins))
            target = Target(name_servers, topic, QueueMapping.SAME, queues)
            check_queue_numbers(choice, target)
            plan = make_plan(choice, cut_parts(table, condition), condition, target, command="by a notebook")
            others = find_others(lake, plan, table)
            if not is_again:
                check_unfinished(others)
            announce(lake, plan, table, others)
            messages = PlannedMessages(plan, table, open_store(lake.bodies))
            counts = ReplayRun(lake, messages, client, Pace(rate or 0), Settings()).run(is_resumed=False)
            found = verify_replay(messages, Ledger(lake, plan.replay_id), client.puller)
            if found.problems:
                raise NotebookError(
                    f"the replay {plan.replay_id} is not in the target as it was sent: 'commitlake replay verify "
                    f"{plan.replay_id}' shows the {count_text(found.problems.total(), 'difference')}"
                )
        rows = read_sent(lake, plan.replay_id)
        groups = [
            GroupFollower(client, plan, group, rows.filter(pc.equal(rows.column("target_topic"), name))).read()
            for name in sorted({queue.topic for queue in plan.target.queues})
            for group in client.admin.groups_of_topic(name)
        ]
    return Replayed(plan, counts, groups, is_new=earlier is None)


def _earlier(lake: Lake, condition: str, name_servers: str, topic: str | None) -> ReplayPlan | None:
    """Return the newest finished replay of the same messages to the same place."""
    states = [
        state
        for state in read_states(lake).values()
        if state.plan.condition == condition
        and (state.plan.target.name_servers, state.plan.target.topic) == (name_servers, topic)
    ]
    if not states:
        return None
    state = states[-1]
    if state.event not in (ReplayEvent.FINISHED, ReplayEvent.VERIFIED):
        raise NotebookError(
            f"the replay {state.plan.replay_id} of the same messages is {state.event}: 'commitlake replay resume "
            f"{state.plan.replay_id}' continues it"
        )
    return state.plan
