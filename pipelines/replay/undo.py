"""Undoes a replay for the groups that consume its target: computes offsets that skip the sent messages.

Messages that a group has consumed stay consumed, including those that it was given again as retries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.rocketmq.errors import NoRouteError, RefusedError
from commitlake.pipelines.lag.group_filter import GroupFilter
from commitlake.pipelines.offsets.live_queues import OffsetClient
from commitlake.pipelines.offsets.sources import OffsetSource
from commitlake.pipelines.replay.sent_runs import Run
from commitlake.pipelines.replay.stepping import GroupMove, OthersReader, step_over
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.routes import MessageQueue

_NOBODY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)


@dataclass(frozen=True, slots=True)
class GroupStep:
    """Move of a group in a queue to which a replay has sent.

    Attributes:
        group: The consumer group.
        queue: The queue of the target.
        sent: Number of messages of the replay in the queue.
        offset: The group's offset; None if it has none.
        step: The move; None if the group cannot be moved.
        problem: Reason why it cannot be moved; empty if it can.
    """

    group: str
    queue: MessageQueue
    sent: int
    offset: int | None
    step: GroupMove | None = None
    problem: str = ""

    @property
    def moves(self) -> bool:
        """True if an offset must be set."""
        return self.step is not None and self.step.to != self.offset and bool(self.step.stepped)


def groups_of_target(
    client: OffsetClient, queues: Collection[MessageQueue], sources: Sequence[OffsetSource]
) -> dict[str, set[str]]:
    """Return the groups that consume the topic of each queue, from the brokers and the lake, without system groups.

    Raises:
        NoRouteError: A topic does not exist, or one of the queues' brokers no longer has it.
        RocketMQError: A broker does not answer.
    """
    found = {}
    for topic in sorted({queue.topic for queue in queues}):
        _check_route(client, topic, {queue.broker_name for queue in queues if queue.topic == topic})
        groups = set(client.admin.groups_of_topic(topic))
        groups |= {place.group for source in sources for place in source.newest if place.topic == topic}
        groups |= {key.group for source in sources for key in source.subscriptions.found if key.topic == topic}
        found[topic] = {group for group in groups if not is_system_group(group)}
    return found


def _check_route(client: OffsetClient, topic: str, brokers: Collection[str]) -> None:
    """Check that a topic's route has all brokers to which messages were sent; groups of others would be missed."""
    routed = {broker.broker_name for broker in client.admin.route(topic).broker_datas}
    if missing := sorted(set(brokers) - routed):
        raise NoRouteError(
            f"topic {topic!r}: the replay sent to {', '.join(missing)}, but its route has only "
            f"{', '.join(sorted(routed))}"
        )


def plan_steps(
    client: OffsetClient,
    replay_id: str,
    runs: Mapping[MessageQueue, Sequence[Run]],
    groups: Mapping[str, Collection[str]],
    sources: Sequence[OffsetSource],
    *,
    skips_others: bool = False,
) -> Iterator[GroupStep]:
    """Yield the move of each group past the messages of a replay, queue by queue.

    Args:
        runs: Offsets of its messages.
        groups: By topic, the groups.
        sources: Stores of the lake, whose snapshots have the filters of groups that have no client now.
        skips_others: True to skip other messages as well.

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
            f"the queue ends at {end}, but the replay's last message was at {runs[-1].end - 1}: the topic was deleted "
            "and created again, or the broker has lost messages"
        )
    if offset is None:
        return "the group has no offset in this queue; its clients' own settings decide where they start"
    return ""


def _other_queue(reader: OthersReader, runs: Sequence[Run], position: int, step: GroupMove) -> str:
    """Return an error text if the messages to skip are not the replay's; empty if they are."""
    stepped = [run for run in runs if position < run.end <= step.to]
    if not step.stepped or not stepped:
        return ""
    for offset in (max(stepped[0].start, position), stepped[-1].end - 1):
        if not reader.is_replays(offset):
            return f"the message at offset {offset} is no longer the replay's: the topic was deleted and created again"
    return ""


def _wanted(client: OffsetClient, group: str, queue: MessageQueue, sources: Sequence[OffsetSource]) -> GroupFilter:
    """Return a group's subscription to a topic from its clients, or else from the lake, or else to everything."""
    try:
        subscribed = client.admin.consumer_connections(group, queue.broker_name).subscription_table.get(queue.topic)
    except RefusedError as error:
        if error.code not in _NOBODY:
            raise
        subscribed = None
    if subscribed is not None:
        return GroupFilter.of(subscribed.expression_type, subscribed.sub_string)
    known = (source.subscriptions.found.get(GroupTopic(group, queue.topic)) for source in sources)
    return next((one.wanted for one in known if one is not None), GroupFilter())
