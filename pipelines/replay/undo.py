"""Undoes a replay for the groups that consume its target: which offsets let each step over what was sent.

What a group has consumed of it stays consumed, and so does what it was given back as a retry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.rocketmq.errors import RefusedError
from commitlake.pipelines.lag.wanted import Wanted
from commitlake.pipelines.offsets.live_queues import OffsetClient
from commitlake.pipelines.offsets.sources import OffsetSource
from commitlake.pipelines.replay.sent_runs import Run
from commitlake.pipelines.replay.stepping import OthersReader, Step, step_over
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue

_NOBODY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)


@dataclass(frozen=True, slots=True)
class GroupStep:
    """A group in a queue that a replay has sent to.

    Attributes:
        group: The consumer group.
        queue: The queue of the target.
        sent: Messages of the replay in the queue.
        offset: The group's offset; None where it has none.
        step: How it steps over them; None where it cannot be moved.
        problem: Why not; empty where it can.
    """

    group: str
    queue: MessageQueue
    sent: int
    offset: int | None
    step: Step | None = None
    problem: str = ""

    @property
    def moves(self) -> bool:
        """Whether an offset is to be set."""
        return self.step is not None and self.step.to != self.offset and bool(self.step.stepped)


def groups_of_target(
    client: OffsetClient, topics: Collection[str], sources: Sequence[OffsetSource]
) -> dict[str, set[str]]:
    """Return the groups that consume each topic, as the brokers and the lake know them, without the brokers' own.

    Raises:
        NoRouteError: A topic is gone.
        RocketMQError: A broker does not answer.
    """
    found = {}
    for topic in topics:
        groups = set(client.admin.groups_of_topic(topic))
        groups |= {place.group for source in sources for place in source.newest if place.topic == topic}
        groups |= {key.group for source in sources for key in source.subscriptions.found if key.topic == topic}
        found[topic] = {group for group in groups if not is_system_group(group)}
    return found


def plan_steps(
    client: OffsetClient,
    replay_id: str,
    runs: Mapping[MessageQueue, Sequence[Run]],
    groups: Mapping[str, Collection[str]],
    sources: Sequence[OffsetSource],
    *,
    skips_others: bool = False,
) -> Iterator[GroupStep]:
    """Yield how each group steps over the messages of a replay, queue by queue.

    Args:
        client: Of the target.
        replay_id: The replay's.
        runs: Where its messages are.
        groups: By topic, the groups.
        sources: The lake's stores, whose snapshots know filters of groups that have no client now.
        skips_others: Step over others' messages, too.

    Raises:
        RocketMQError: The target does not answer.
    """
    for queue, of_queue in sorted(runs.items()):
        first, end = client.admin.offsets.first(queue), client.admin.offsets.next(queue)
        for group in sorted(groups.get(queue.topic, ())):
            sent = sum(run.end - run.start for run in of_queue)
            offset = client.admin.offsets.committed(queue, group)
            if problem := _problem(of_queue, offset, end):
                yield GroupStep(group, queue, sent, offset, None, problem)
                continue
            assert offset is not None
            reader = OthersReader(client.puller, queue, replay_id, _wanted(client, group, queue, sources))
            step = step_over(of_queue, max(offset, first), reader.others_in, skips_others=skips_others)
            problem = _other_queue(reader, of_queue, max(offset, first), step)
            yield GroupStep(group, queue, sent, offset, None if problem else step, problem)


def _problem(runs: Sequence[Run], offset: int | None, end: int) -> str:
    if end < runs[-1].end:
        return (
            f"the queue ends at {end}, and the replay's last message was at {runs[-1].end - 1}: the topic was deleted "
            "and made again, or the broker has lost messages"
        )
    if offset is None:
        return "the group has no offset in this queue: where its clients begin is their own setting"
    return ""


def _other_queue(reader: OthersReader, runs: Sequence[Run], position: int, step: Step) -> str:
    """Return a sentence where what would be stepped over is not the replay's; else nothing."""
    stepped = [run for run in runs if position < run.end <= step.to]
    if not step.stepped or not stepped:
        return ""
    for offset in (max(stepped[0].start, position), stepped[-1].end - 1):
        if not reader.is_replays(offset):
            return (
                f"the message at offset {offset} is not the replay's any longer: the topic was deleted and made again"
            )
    return ""


def _wanted(client: OffsetClient, group: str, queue: MessageQueue, sources: Sequence[OffsetSource]) -> Wanted:
    """Return what a group wants of a topic, from its clients, else from the lake, else everything."""
    try:
        subscribed = client.admin.consumer_connections(group, queue.broker_name).subscription_table.get(queue.topic)
    except RefusedError as error:
        if error.code not in _NOBODY:
            raise
        subscribed = None
    if subscribed is not None:
        return Wanted.of(subscribed.expression_type, subscribed.sub_string)
    known = (source.subscriptions.found.get(GroupTopic(group, queue.topic)) for source in sources)
    return next((one.wanted for one in known if one is not None), Wanted())
