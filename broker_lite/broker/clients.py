"""Registry of connected producers and consumers by group, kept alive by heartbeats.

Source: ConsumerManager, ConsumerGroupInfo, ProducerManager (5.5.0).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from commitlake.broker_lite.broker.filters import FilterError, check_subscription
from commitlake.broker_lite.broker.limits import (
    MAX_CLIENTS_OF_ONE,
    MAX_MEMBERSHIPS,
    MAX_MEMBERSHIPS_OF_ADDRESS,
    MAX_MEMBERSHIPS_OF_ONE,
    MAX_NAME_LENGTH,
    MAX_SUBSCRIPTION_CHARACTERS,
    MAX_SUBSCRIPTIONS,
    Quotas,
    check_limit,
)
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.heartbeats import (
    TAG_EXPRESSION,
    ClientConnection,
    ConsumerConnection,
    ConsumerData,
    Heartbeat,
    SubscriptionData,
    subscription_of_tags,
)

BROADCASTING = "BROADCASTING"
_MAX_WORD_LENGTH = 64
"""Maximum length of a consumer's type, message model and expression type, such as CONSUME_PASSIVELY or CLUSTERING."""

_MEMBERS_OF_STEP = 100


class _Membership(NamedTuple):
    """Membership of a client in a producer or consumer group."""

    group: str
    client_id: str
    is_consumer: bool


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """Client in a group, with its connection and the time of its last heartbeat."""

    client_id: str
    channel: Channel
    language: str
    version: int
    heard_ms: int

    def connection(self) -> ClientConnection:
        """Return the data about the client's connection that administrators are shown."""
        return ClientConnection(self.client_id, str(self.channel.peer), self.language, self.version)


@dataclass(slots=True)
class ConsumerGroup:
    """Consumer group whose members share queues.

    Attributes:
        data: settings of the group in the latest heartbeat.
        members: members of the group, by client id.
        subscriptions: subscriptions of the group, by topic.
        size: characters of the subscriptions.
    """

    data: ConsumerData
    members: dict[str, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    size: int = 0

    def settings(self) -> ConsumerConnection:
        """Return the group's subscriptions and settings as administrators see them, without the members."""
        return ConsumerConnection(
            (),
            dict(self.subscriptions),
            self.data.consume_type,
            self.data.message_model,
            self.data.consume_from_where,
        )

    def update_subscriptions(self, consumer_data: ConsumerData) -> bool:
        """Store the subscriptions of a member, and return whether the set of topics changed."""
        self.data = consumer_data
        wanted = {each.topic: complete_subscription(each) for each in consumer_data.subscription_data_set}
        changed = wanted.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            # The heartbeats of two members may cross. The subscription that was changed last counts.
            if known is None or subscription.sub_version >= known.sub_version:
                self.subscriptions[topic] = subscription
        self.size = sum(map(_subscription_size, self.subscriptions.values()))
        return changed


def complete_subscription(subscription: SubscriptionData) -> SubscriptionData:
    """Return the subscription with the hashes of its tags filled in, which non-Java clients may leave out."""
    if subscription.expression_type != TAG_EXPRESSION or subscription.code_set:
        return subscription
    return subscription_of_tags(subscription.topic, subscription.sub_string, subscription.sub_version)


def _subscription_size(subscription: SubscriptionData) -> int:
    """Return the approximate number of characters of a subscription, which counts against a limit."""
    tags = sum(map(len, subscription.tags_set)) + 8 * len(subscription.code_set)
    return len(subscription.topic) + len(subscription.sub_string) + tags


class Clients:
    """Producers and consumers of a broker, by group."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.producers: dict[str, dict[str, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        # Index by connection: when thousands of connections close at once, no scan over all clients is needed.
        self._memberships: dict[Channel, set[_Membership]] = {}
        self._quotas = Quotas(
            of_one=MAX_MEMBERSHIPS_OF_ONE, of_address=MAX_MEMBERSHIPS_OF_ADDRESS, in_all=MAX_MEMBERSHIPS
        )
        self._subscriptions_size = 0

    def check_limits(self, channel: Channel, heartbeat: Heartbeat) -> None:
        """Raise an error if a heartbeat would exceed a limit; change nothing.

        Raises:
            CommandError: if a name is too long, or there are too many groups, clients or subscriptions.
        """
        names = [heartbeat.client_id, *(producer.group_name for producer in heartbeat.producer_data_set)]
        size = self._subscriptions_size
        for data in heartbeat.consumer_data_set:
            names.append(data.group_name)
            _check_subscription_limits(data)
            known = self.consumers.get(data.group_name)
            size += sum(map(_subscription_size, data.subscription_data_set)) - (known.size if known else 0)
        check_limit("characters of a name", MAX_NAME_LENGTH, max(map(len, names)))
        check_limit("characters of all subscriptions", MAX_SUBSCRIPTION_CHARACTERS, size)
        known_memberships = self._memberships.get(channel, set())
        clients = {heartbeat.client_id, *(membership.client_id for membership in known_memberships)}
        check_limit("clients on one connection", MAX_CLIENTS_OF_ONE, len(clients))
        together = known_memberships.union(_memberships_of(heartbeat))
        check_limit("groups on one connection", MAX_MEMBERSHIPS_OF_ONE, len(together))
        if not self._quotas.has_room(channel, len(together) - len(known_memberships)):
            raise CommandError(
                "too many groups and clients are registered: the limit for this address or for the broker is reached"
            )

    def register_heartbeat(self, channel: Channel, request: Command, heartbeat: Heartbeat, now_ms: int) -> set[str]:
        """Register a client and its groups from a heartbeat.

        Returns:
            The consumer groups whose members or subscriptions changed.

        Raises:
            CommandError: see `check_limits`.
        """
        self.check_limits(channel, heartbeat)
        client_id = heartbeat.client_id
        memberships = _memberships_of(heartbeat)
        produced, consumed = (
            memberships[: len(heartbeat.producer_data_set)],
            memberships[len(heartbeat.producer_data_set) :],
        )
        self._add_memberships(channel, memberships)
        member = Member(client_id, channel, request.language.name, request.version, now_ms)  # shared by its groups
        for membership in produced:
            self._put_member(self.producers.setdefault(membership.group, {}), membership, member)
        changed = set()
        for membership, data in zip(consumed, heartbeat.consumer_data_set, strict=True):
            group = self.consumers.setdefault(membership.group, ConsumerGroup(data))
            known = self._put_member(group.members, membership, member)
            before = group.size
            subscribed = group.update_subscriptions(data)
            self._subscriptions_size += group.size - before
            if subscribed or known is None or known.channel is not channel:
                changed.add(membership.group)
        return changed

    def _add_memberships(self, channel: Channel, memberships: list[_Membership]) -> None:
        known = self._memberships.get(channel, set())
        together = known.union(memberships)
        if together:
            self._quotas.take(channel, len(together) - len(known))
            self._memberships[channel] = together

    def _put_member(self, members: dict[str, Member], membership: _Membership, member: Member) -> Member | None:
        """Add a client to a group or replace its entry there, and return the previous entry or None."""
        known = members.get(membership.client_id)
        # The client has connected again before its old connection was found closed.
        if known is not None and known.channel is not member.channel:
            self._drop_channel_membership(known, membership)
        members[membership.client_id] = member
        return known

    def _drop_channel_membership(self, member: Member, membership: _Membership) -> None:
        memberships = self._memberships.get(member.channel)
        if memberships is not None and membership in memberships:
            memberships.discard(membership)
            self._quotas.release(member.channel)
            if not memberships:
                del self._memberships[member.channel]

    def unregister(
        self, channel: Channel, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> set[str]:
        """Remove a client from the given groups, unless it registered over another connection.

        Returns:
            The consumer groups that it was in.
        """
        wanted = {
            _Membership(group, client_id, is_consumer=is_consumer)
            for group, is_consumer in ((producer_group, False), (consumer_group, True))
            if group
        }
        return self._remove_memberships(wanted & self._memberships.get(channel, set()))

    def remove_connection(self, channel: Channel) -> set[str]:
        """Remove all clients of a closed connection, and return the consumer groups they were in."""
        return self._remove_memberships(list(self._memberships.get(channel, ())))

    def remove_expired_clients(self, now_ms: int) -> Generator[None, None, set[str]]:
        """Remove all clients whose heartbeats have timed out, in small steps.

        Returns:
            The consumer groups that they were in.
        """
        oldest = now_ms - self._timeout_ms
        changed: set[str] = set()
        seen = 0
        for is_consumer, name in [
            *((False, name) for name in self.producers),
            *((True, name) for name in self.consumers),
        ]:
            members = self._group_members(name, is_consumer=is_consumer)
            for member in list(members.values()):
                # It may have sent a heartbeat since, in a pause of this generator.
                if member.heard_ms < oldest and members.get(member.client_id) is member:
                    changed |= self._remove_memberships([_Membership(name, member.client_id, is_consumer=is_consumer)])
                seen += 1
                if seen % _MEMBERS_OF_STEP == 0:
                    yield
        return changed

    def _group_members(self, group_name: str, *, is_consumer: bool) -> dict[str, Member]:
        if not is_consumer:
            return self.producers.get(group_name, {})
        group = self.consumers.get(group_name)
        return group.members if group else {}

    def _remove_memberships(self, memberships: Iterable[_Membership]) -> set[str]:
        return {
            membership.group
            for membership in memberships
            if self._remove_membership(membership) and membership.is_consumer
        }

    def _remove_membership(self, membership: _Membership) -> bool:
        """Remove a client from a group, and return whether it was a member."""
        name = membership.group
        members = self._group_members(name, is_consumer=membership.is_consumer)
        member = members.pop(membership.client_id, None)
        if member is None:
            return False
        self._drop_channel_membership(member, membership)
        if not members and membership.is_consumer:
            self._subscriptions_size -= self.consumers.pop(name).size
        elif not members:
            self.producers.pop(name)
        return True

    def find_member(self, consumer_group: str, client_id: str | None) -> Member | None:
        """Return a member of a consumer group, or None."""
        group = self.consumers.get(consumer_group)
        return group.members.get(client_id) if group and client_id is not None else None

    def members(self, consumer_group: str) -> Iterator[Member]:
        """Return the members of a consumer group."""
        group = self.consumers.get(consumer_group)
        return iter(list(group.members.values()) if group else ())


def _memberships_of(heartbeat: Heartbeat) -> list[_Membership]:
    """Return the memberships that a client's heartbeat states, producer groups first."""
    client_id = heartbeat.client_id
    produced = [
        _Membership(producer.group_name, client_id, is_consumer=False) for producer in heartbeat.producer_data_set
    ]
    return produced + [
        _Membership(data.group_name, client_id, is_consumer=True) for data in heartbeat.consumer_data_set
    ]


def _check_subscription_limits(consumer_data: ConsumerData) -> None:
    check_limit("topics of one group", MAX_SUBSCRIPTIONS, len(consumer_data.subscription_data_set))
    words = [consumer_data.consume_type, consumer_data.message_model, consumer_data.consume_from_where]
    for subscription in consumer_data.subscription_data_set:
        check_limit("characters of a topic", MAX_NAME_LENGTH, len(subscription.topic))
        words.append(subscription.expression_type)
        try:
            check_subscription(subscription)
        except FilterError as error:
            raise CommandError(
                f"the subscription of {consumer_data.group_name} to {subscription.topic}: {error}"
            ) from error
    check_limit("characters of a consumer's kind", _MAX_WORD_LENGTH, max(map(len, words)))
