"""Who is connected: producers and consumers by group, kept up by their heartbeats.

Source: ConsumerManager, ConsumerGroupInfo, ProducerManager (5.5.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from commitlake.broker_lite.broker.filters import FilterError, check_subscription
from commitlake.broker_lite.broker.limits import (
    MAX_CLIENTS_OF_ONE,
    MAX_NAME_LENGTH,
    MAX_PLACES,
    MAX_PLACES_OF_ADDRESS,
    MAX_PLACES_OF_ONE,
    MAX_SUBSCRIPTION_CHARACTERS,
    MAX_SUBSCRIPTIONS,
    LimitError,
    check_limit,
)
from commitlake.broker_lite.broker.shares import Shares
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.heartbeats import (
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
_MAX_WORD_LENGTH = 64
"""Of what a consumer says of its kind: CONSUME_PASSIVELY, CLUSTERING."""


class _Place(NamedTuple):
    """A client in a group."""

    group: str
    client_id: str
    is_consumer: bool


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
        size: characters of the subscriptions.
    """

    data: ConsumerData
    members: dict[str, Member] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    size: int = 0

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
        self.size = sum(map(_size_of, self.subscriptions.values()))
        return changed


def complete_subscription(subscription: SubscriptionData) -> SubscriptionData:
    """A subscription with the hashes of its tags, which clients that are not Java's may leave out."""
    if subscription.expression_type != TAG_EXPRESSION or subscription.code_set:
        return subscription
    return subscription_of_tags(subscription.topic, subscription.sub_string, subscription.sub_version)


def _size_of(subscription: SubscriptionData) -> int:
    """Return about how many characters a subscription takes."""
    tags = sum(map(len, subscription.tags_set)) + 8 * len(subscription.code_set)
    return len(subscription.topic) + len(subscription.sub_string) + tags


class Clients:
    """All groups of a broker."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.producers: dict[str, dict[str, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        # When thousands of connections end at once, nobody is to be searched for among all clients.
        self._places: dict[Channel, set[_Place]] = {}
        self._shares = Shares(of_one=MAX_PLACES_OF_ONE, of_address=MAX_PLACES_OF_ADDRESS, in_all=MAX_PLACES)
        self._subscriptions_size = 0

    def check(self, channel: Channel, heartbeat: Heartbeat) -> None:
        """Refuse a heartbeat that would have the broker keep too much; nothing is changed.

        Raises:
            LimitError: if a name is too long, or there are too many groups, clients or subscriptions.
        """
        names = [heartbeat.client_id, *(producer.group_name for producer in heartbeat.producer_data_set)]
        size = self._subscriptions_size
        for data in heartbeat.consumer_data_set:
            names.append(data.group_name)
            _check_consumer(data)
            known = self.consumers.get(data.group_name)
            size += sum(map(_size_of, data.subscription_data_set)) - (known.size if known else 0)
        check_limit("characters of a name", MAX_NAME_LENGTH, max(map(len, names)))
        check_limit("characters of all subscriptions", MAX_SUBSCRIPTION_CHARACTERS, size)
        known_places = self._places.get(channel, set())
        clients = {heartbeat.client_id, *(place.client_id for place in known_places)}
        check_limit("clients on one connection", MAX_CLIENTS_OF_ONE, len(clients))
        together = known_places.union(_places_of(heartbeat))
        check_limit("groups on one connection", MAX_PLACES_OF_ONE, len(together))
        if not self._shares.has_room(channel, len(together) - len(known_places)):
            raise LimitError("there are too many groups and clients already, on this address or in all")

    def heartbeat(self, channel: Channel, request: Command, heartbeat: Heartbeat, now_ms: int) -> set[str]:
        """Take a client's word on its groups.

        Returns:
            The consumer groups in which something has changed.

        Raises:
            LimitError: see `check`.
        """
        self.check(channel, heartbeat)
        client_id = heartbeat.client_id
        places = _places_of(heartbeat)
        produced, consumed = places[: len(heartbeat.producer_data_set)], places[len(heartbeat.producer_data_set) :]
        self._note_places(channel, places)
        for place in produced:
            members = self.producers.setdefault(place.group, {})
            self._replace(members, place, _member(client_id, channel, request, now_ms))
        changed = set()
        for place, data in zip(consumed, heartbeat.consumer_data_set, strict=True):
            group = self.consumers.setdefault(place.group, ConsumerGroup(data))
            known = self._replace(group.members, place, _member(client_id, channel, request, now_ms))
            before = group.size
            subscribed = group.subscribe(data)
            self._subscriptions_size += group.size - before
            if subscribed or known is None or known.channel is not channel:
                changed.add(place.group)
        return changed

    def _note_places(self, channel: Channel, places: list[_Place]) -> None:
        known = self._places.get(channel, set())
        together = known.union(places)
        if together:
            self._shares.take(channel, len(together) - len(known))
            self._places[channel] = together

    def _replace(self, members: dict[str, Member], place: _Place, member: Member) -> Member | None:
        """Put a client into a group; gives what was known of it there."""
        known = members.get(place.client_id)
        if known is not None and known.channel is not member.channel:
            self._forget_place(known, place)
        members[place.client_id] = member
        return known

    def _forget_place(self, member: Member, place: _Place) -> None:
        places = self._places.get(member.channel)
        if places is not None and place in places:
            places.discard(place)
            self._shares.release(member.channel)
            if not places:
                del self._places[member.channel]

    def unregister(
        self, channel: Channel, client_id: str, producer_group: str | None, consumer_group: str | None
    ) -> set[str]:
        """Take a client out of groups that it leaves, if it came by this connection.

        Returns:
            The consumer groups that it was in.
        """
        wanted = {
            _Place(group, client_id, is_consumer=is_consumer)
            for group, is_consumer in ((producer_group, False), (consumer_group, True))
            if group
        }
        return self._drop_all(wanted & self._places.get(channel, set()))

    def lost(self, channel: Channel) -> set[str]:
        """Take out everybody who came by a connection that has ended; gives their consumer groups."""
        return self._drop_all(list(self._places.get(channel, ())))

    def expire(self, now_ms: int) -> set[str]:
        """Take out everybody who is silent; gives their consumer groups."""
        oldest = now_ms - self._timeout_ms
        silent = [
            _Place(name, member.client_id, is_consumer=is_consumer)
            for is_consumer, name, members in self._groups()
            for member in members.values()
            if member.heard_ms < oldest
        ]
        return self._drop_all(silent)

    def _groups(self) -> Iterator[tuple[bool, str, dict[str, Member]]]:
        for name, members in self.producers.items():
            yield False, name, members
        for name, group in self.consumers.items():
            yield True, name, group.members

    def _drop_all(self, places: Iterable[_Place]) -> set[str]:
        return {place.group for place in places if self._drop(place) and place.is_consumer}

    def _drop(self, place: _Place) -> bool:
        """Take a client out of a group; tells whether it was there."""
        name = place.group
        if place.is_consumer:
            group = self.consumers.get(name)
            members = group.members if group else {}
        else:
            members = self.producers.get(name, {})
        member = members.pop(place.client_id, None)
        if member is None:
            return False
        self._forget_place(member, place)
        if not members and place.is_consumer:
            self._subscriptions_size -= self.consumers.pop(name).size
        elif not members:
            self.producers.pop(name)
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


def _places_of(heartbeat: Heartbeat) -> list[_Place]:
    """The groups of a heartbeat, those of producers first."""
    client_id = heartbeat.client_id
    produced = [_Place(producer.group_name, client_id, is_consumer=False) for producer in heartbeat.producer_data_set]
    return produced + [_Place(data.group_name, client_id, is_consumer=True) for data in heartbeat.consumer_data_set]


def _check_consumer(data: ConsumerData) -> None:
    check_limit("topics of one group", MAX_SUBSCRIPTIONS, len(data.subscription_data_set))
    words = [data.consume_type, data.message_model, data.consume_from_where]
    for subscription in data.subscription_data_set:
        check_limit("characters of a topic", MAX_NAME_LENGTH, len(subscription.topic))
        words.append(subscription.expression_type)
        try:
            check_subscription(subscription)
        except FilterError as error:
            raise LimitError(f"the subscription of {data.group_name} to {subscription.topic}: {error}") from error
    check_limit("characters of a consumer's kind", _MAX_WORD_LENGTH, max(map(len, words)))
