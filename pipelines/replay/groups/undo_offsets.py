"""Undoes a replay for the groups that consume its target: computes offsets that skip the sent messages.

Messages that a group has consumed stay consumed, including those that it was given again as retries.

A group has one offset in a queue. To skip a message, it must skip all messages before it that it has not consumed. So
it is moved past the next messages of the replay, and stops at another message that it wants:

    offsets      5 6 7   8   9 10 11
    of           R R R   X   R  R  R        the group is at 5 and is moved to 8; moved to 12, it would lose X

Once it has consumed X, it can be moved past the rest. Messages that the group's filter leaves out do not stop it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError, RefusedError
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.pipelines.offsets.live_queues import OffsetClient
from commitlake.pipelines.offsets.offset_sources import OffsetSource
from commitlake.pipelines.replay.origin_properties import REPLAY_ID
from commitlake.pipelines.replay.sent_messages import OffsetRun
from commitlake.pipelines.snapshot.progress import GroupTopic
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.topics import is_system_group
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.sql92 import compile_sql92

_NOBODY = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
MAX_READ = 10_000
"""Messages between those of a replay that are read, for one queue and group. If there are more, they only count."""
MAX_NAMED = 3


@dataclass(frozen=True, slots=True)
class GroupStep:
    """Planned move of a group's offset in a queue to which a replay has sent messages.

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
    def needs_move(self) -> bool:
        """True if the group's offset must be set."""
        return self.step is not None and self.step.to != self.offset and bool(self.step.stepped)


def find_consumer_groups(
    client: OffsetClient, queues: Collection[MessageQueue], offset_sources: Sequence[OffsetSource]
) -> dict[str, set[str]]:
    """Return the groups that consume each queue's topic, from the brokers and the lake, without system groups.

    Raises:
        NoRouteError: A topic does not exist, or one of the queues' brokers no longer has it.
    """
    found = {}
    for topic in sorted({queue.topic for queue in queues}):
        _check_route_has_brokers(client, topic, {queue.broker_name for queue in queues if queue.topic == topic})
        groups = set(client.admin.groups_of_topic(topic))
        groups |= {place.group for source in offset_sources for place in source.newest if place.topic == topic}
        groups |= {key.group for source in offset_sources for key in source.subscriptions.found if key.topic == topic}
        found[topic] = {group for group in groups if not is_system_group(group)}
    return found


def _check_route_has_brokers(client: OffsetClient, topic: str, brokers: Collection[str]) -> None:
    """Raise an error if a broker to which messages were sent is not in the topic's route, so its groups are unknown."""
    routed = {broker.broker_name for broker in client.admin.route(topic).broker_datas}
    if missing := sorted(set(brokers) - routed):
        raise NoRouteError(
            f"topic {topic!r}: the replay sent messages to the brokers {', '.join(missing)}, but the topic's route now "
            f"has only {', '.join(sorted(routed))}"
        )


def plan_group_steps(
    client: OffsetClient,
    replay_id: str,
    offset_runs: Mapping[MessageQueue, Sequence[OffsetRun]],
    groups_by_topic: Mapping[str, Collection[str]],
    offset_sources: Sequence[OffsetSource],
    *,
    skips_other_messages: bool = False,
) -> Iterator[GroupStep]:
    """Yield, for each queue and group, the move of the group's offset that skips the messages of a replay.

    Args:
        offset_runs: Offsets of its messages.
        groups_by_topic: By topic, the groups.
        offset_sources: Stores of the lake, whose snapshots have the filters of groups that have no client now.
        skips_other_messages: True to skip other messages as well.
    """
    for queue, of_queue in sorted(offset_runs.items()):
        first, end = client.admin.offsets.first(queue), client.admin.offsets.next(queue)
        for group in sorted(groups_by_topic.get(queue.topic, ())):
            sent = sum(run.end - run.start for run in of_queue)
            offset = client.admin.offsets.committed(queue, group)
            if problem := _offset_problem(of_queue, offset, end):
                yield GroupStep(group, queue, sent, offset, None, problem)
                continue
            assert offset is not None
            reader = OtherMessagesReader(
                client.puller, queue, replay_id, _subscription_filter(client, group, queue, offset_sources)
            )
            # Messages before the first offset were deleted; the group goes on at the first one.
            step = compute_group_move(
                of_queue, max(offset, first), reader.read_other_messages, skips_other_messages=skips_other_messages
            )
            problem = _skipped_message_problem(reader, of_queue, max(offset, first), step)
            yield GroupStep(group, queue, sent, offset, None if problem else step, problem)


def _offset_problem(offset_runs: Sequence[OffsetRun], committed_offset: int | None, queue_end: int) -> str:
    if queue_end < offset_runs[-1].end:
        return (
            f"the queue ends at {queue_end}, but the replay's last message was at {offset_runs[-1].end - 1}: the topic "
            "was deleted and created again, or the broker has lost messages"
        )
    if committed_offset is None:
        return "the group has no offset in this queue; its clients' own settings decide where they start"
    return ""


def _skipped_message_problem(
    reader: OtherMessagesReader, offset_runs: Sequence[OffsetRun], next_offset: int, move: GroupMove
) -> str:
    """Return an error text if the first or last message to skip is not of the replay; else an empty string."""
    stepped = [run for run in offset_runs if next_offset < run.end <= move.to]
    if not move.stepped or not stepped:
        return ""
    # Two messages suffice to notice a topic that was created again, whose offsets begin at 0.
    for offset in (max(stepped[0].start, next_offset), stepped[-1].end - 1):
        if not reader.is_of_replay(offset):
            return f"the message at offset {offset} is no longer the replay's: the topic was deleted and created again"
    return ""


def _subscription_filter(
    client: OffsetClient, group: str, queue: MessageQueue, offset_sources: Sequence[OffsetSource]
) -> SubscriptionFilter:
    """Return a group's subscription to a topic, from its clients or else the lake; if unknown, to all messages."""
    try:
        subscribed = client.admin.consumer_connections(group, queue.broker_name).subscription_table.get(queue.topic)
    except RefusedError as error:
        if error.code not in _NOBODY:
            raise
        subscribed = None
    if subscribed is not None:
        return SubscriptionFilter.of(subscribed.expression_type, subscribed.sub_string)
    known = (source.subscriptions.found.get(GroupTopic(group, queue.topic)) for source in offset_sources)
    return next((one.wanted for one in known if one is not None), SubscriptionFilter())


@dataclass(frozen=True, slots=True)
class OtherMessages:
    """Messages wanted by a group that lie between those of a replay in a queue, but were not sent by it.

    Attributes:
        count: Number of messages.
        names: Texts that name the first of them.
    """

    count: int = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupMove:
    """Offset to which a group can move in a queue to skip a replay's messages, and the messages that this affects.

    Attributes:
        to: The offset to set; the group's own if there is nothing to skip.
        stepped: Number of messages of the replay that it skips.
        consumed: Number of messages of the replay that it has passed before.
        left: Number of messages of the replay that remain after the move.
        skipped: Other messages that it loses by the move; none unless requested.
        others: Other messages that it would lose if it also skipped the rest.
    """

    to: int
    stepped: int
    consumed: int
    left: int
    skipped: OtherMessages
    others: OtherMessages


def compute_group_move(
    offset_runs: Sequence[OffsetRun],
    next_offset: int,
    read_other_messages: Callable[[int, int], OtherMessages],
    *,
    skips_other_messages: bool,
) -> GroupMove:
    """Compute how far a group's offset can move to skip a replay's messages in a queue.

    Args:
        offset_runs: Runs of the replay, in ascending order.
        next_offset: The next offset that the group consumes.
        read_other_messages: Returns the wanted messages in a range of offsets that are not the replay's.
        skips_other_messages: True to skip other messages as well, up to the end of the last run.
    """
    to, stepped, left = next_offset, 0, 0
    skipped, others = OtherMessages(), OtherMessages()
    end = next_offset
    is_blocked = False
    for run in offset_runs:
        if run.end <= next_offset:
            continue
        # Adjacent runs have nothing between them, so nothing is read.
        between = read_other_messages(end, run.start) if run.start > end else OtherMessages()
        end = run.end
        size = run.end - max(run.start, next_offset)
        if between.count and not skips_other_messages:
            # Once blocked, all later runs stay: one offset cannot skip them without the message before them.
            is_blocked = True
        if is_blocked:
            others = _join_other_messages(others, between)
            left += size
        else:
            skipped = _join_other_messages(skipped, between)
            to, stepped = run.end, stepped + size
    consumed = sum(min(run.end, next_offset) - run.start for run in offset_runs if run.start < next_offset)
    return GroupMove(to, stepped, consumed, left, skipped, others)


def _join_other_messages(first: OtherMessages, second: OtherMessages) -> OtherMessages:
    return OtherMessages(first.count + second.count, (*first.names, *second.names)[:MAX_NAMED])


class OtherMessagesReader:
    """Reads the messages in a queue that a group wants and that a replay did not send.

    Args:
        puller: Reads the target.
        queue: The queue.
        replay_id: Id of the replay.
        wanted: The group's subscription to the topic.
    """

    def __init__(self, puller: Puller, queue: MessageQueue, replay_id: str, wanted: SubscriptionFilter) -> None:
        self._puller, self._queue, self._replay_id = puller, queue, replay_id
        self._is_wanted = _compile_filter(wanted)
        self._left = MAX_READ

    def read_other_messages(self, start: int, end: int) -> OtherMessages:
        """Return the messages not sent by the replay, at offsets from `start` to before `end`."""
        if end - start > self._left:
            # Too many to be read: all count as wanted, so that nothing is skipped by mistake.
            return OtherMessages(end - start, self._message_names(self._read_messages(start, start + MAX_NAMED)))
        self._left -= end - start
        found = [message for message in self._read_messages(start, end) if self._is_other_message(message)]
        return OtherMessages(len(found), self._message_names(found[:MAX_NAMED]))

    def is_of_replay(self, offset: int) -> bool:
        """Return whether the message at a queue offset was sent by the replay."""
        found = self._read_messages(offset, offset + 1)
        return bool(found) and found[0].properties.get(REPLAY_ID) == self._replay_id

    def _is_other_message(self, message: Message) -> bool:
        return message.properties.get(REPLAY_ID) != self._replay_id and self._is_wanted(message)

    def _message_names(self, messages: Sequence[Message]) -> tuple[str, ...]:
        return tuple(
            f"offset {message.queue_offset}" + (f", keys {' '.join(message.keys)}" if message.keys else "")
            for message in messages
        )

    def _read_messages(self, start: int, end: int) -> list[Message]:
        found = list(self._puller.read(self._queue, start, end))
        if found and found[-1].queue_offset >= end:
            raise ProtocolError(
                f"queue {self._queue.queue_id} of {self._queue.topic}: expected messages with queue offsets before "
                f"{end} in the broker's answer, found one with {found[-1].queue_offset}"
            )
        return found


def _compile_filter(subscription: SubscriptionFilter) -> Callable[[Message], bool]:
    if subscription.expression_type == SQL92_EXPRESSION:
        condition = compile_sql92(subscription.expression)
        return lambda message: condition(message.properties)
    tags = subscription.tags
    return lambda message: tags is None or message.tags in tags
