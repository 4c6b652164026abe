"""Who is connected: producers and consumers by group, kept up by their heartbeats.

Source: ConsumerManager, ConsumerGroupInfo, ProducerManager (5.5.0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from broker_lite.protocol import Channel
from schemas.layouts.remoting import Command
from schemas.remoting.heartbeats import (
    TAG_EXPRESSION,
    Connection,
    ConsumerConnection,
    ConsumerData,
    Heartbeat,
    ProducerConnection,
    SubscriptionData,
    subscription_of_tags,
)

BROADCASTING = "BROADCASTING"


@dataclass(slots=True)
class Member:
    """One client in one group."""

    client_id: str
    channel: Channel
    language: str
    version: int
    heard_ms: int

    def connection(self) -> Connection:
        """The client for administrators."""
        return Connection(self.client_id, str(self.channel.peer), self.language, self.version)


@dataclass(slots=True)
class ConsumerGroup:
    """The consumers that share a group.

    Attributes:
        data: what the last of them said about the group.
        members: by client id.
        subscriptions: by topic.
    """

    data: ConsumerData
    members: dict[str, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    def connections(self) -> ConsumerConnection:
        """The group for administrators."""
        return ConsumerConnection(
            tuple(member.connection() for member in self.members.values()),
            dict(self.subscriptions),
            self.data.consume_type,
            self.data.message_model,
            self.data.consume_from_where,
        )

    def subscribe(self, data: ConsumerData) -> bool:
        """Take what a member subscribes to; tells whether a topic came or went."""
        self.data = data
        wanted = {each.topic: complete_subscription(each) for each in data.subscription_data_set}
        changed = wanted.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is None or subscription.sub_version >= known.sub_version:
                self.subscriptions[topic] = subscription
        return changed


def complete_subscription(subscription: SubscriptionData) -> SubscriptionData:
    """A subscription with the hashes of its tags, which clients that are not Java's may leave out."""
    if subscription.expression_type != TAG_EXPRESSION or subscription.code_set:
        return subscription
    return subscription_of_tags(subscription.topic, subscription.sub_string, subscription.sub_version)


class Clients:
    """All groups of a broker."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.producers: dict[str, dict[str, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}

    def heartbeat(self, channel: Channel, request: Command, heartbeat: Heartbeat, now_ms: int) -> set[str]:
        """Take a client's word on its groups.

        Returns:
            The consumer groups in which something has changed.
        """
        changed = set()
        for producer in heartbeat.producer_data_set:
            members = self.producers.setdefault(producer.group_name, {})
            members[heartbeat.client_id] = _member(heartbeat.client_id, channel, request, now_ms)
        for data in heartbeat.consumer_data_set:
            group = self.consumers.setdefault(data.group_name, ConsumerGroup(data))
            known = group.members.get(heartbeat.client_id)
            group.members[heartbeat.client_id] = _member(heartbeat.client_id, channel, request, now_ms)
            subscribed = group.subscribe(data)
            if subscribed or known is None or known.channel is not channel:
                changed.add(data.group_name)
        return changed

    def unregister(self, client_id: str, producer_group: str | None, consumer_group: str | None) -> set[str]:
        """Take a client out of groups that it leaves; gives the consumer groups that it was in."""
        if producer_group:
            self._drop_producer(producer_group, client_id)
        if consumer_group and self._drop_consumer(consumer_group, client_id):
            return {consumer_group}
        return set()

    def lost(self, channel: Channel) -> set[str]:
        """Take out everybody who came by a connection that has ended; gives their consumer groups."""
        return self._drop_where(lambda member: member.channel is channel)

    def expire(self, now_ms: int) -> set[str]:
        """Take out everybody who is silent; gives their consumer groups."""
        return self._drop_where(lambda member: now_ms - member.heard_ms > self._timeout_ms)

    def _drop_where(self, is_gone: Callable[[Member], bool]) -> set[str]:
        for name, members in list(self.producers.items()):
            for member in [member for member in members.values() if is_gone(member)]:
                self._drop_producer(name, member.client_id)
        changed = set()
        for name, group in list(self.consumers.items()):
            for member in [member for member in group.members.values() if is_gone(member)]:
                self._drop_consumer(name, member.client_id)
                changed.add(name)
        return changed

    def _drop_producer(self, group: str, client_id: str) -> None:
        members = self.producers.get(group, {})
        members.pop(client_id, None)
        if not members:
            self.producers.pop(group, None)

    def _drop_consumer(self, name: str, client_id: str) -> bool:
        group = self.consumers.get(name)
        if group is None or group.members.pop(client_id, None) is None:
            return False
        if not group.members:
            del self.consumers[name]
        return True

    def producer_connections(self, group: str) -> ProducerConnection:
        """A producer group for administrators."""
        members = self.producers.get(group, {})
        return ProducerConnection(tuple(member.connection() for member in members.values()))

    def members(self, consumer_group: str) -> Iterator[Member]:
        """The consumers of a group."""
        group = self.consumers.get(consumer_group)
        return iter(list(group.members.values()) if group else ())


def _member(client_id: str, channel: Channel, request: Command, now_ms: int) -> Member:
    return Member(client_id, channel, request.language.name, request.version, now_ms)
