"""A broker without a network: everything that its handlers share."""

from __future__ import annotations

from collections import deque

from commitlake.broker_lite.broker.clients import Clients
from commitlake.broker_lite.broker.groups import GroupTable
from commitlake.broker_lite.broker.holding import HeldPulls
from commitlake.broker_lite.broker.interfaces import BrokerStore
from commitlake.broker_lite.broker.layouts import delivery_of, parking_topics
from commitlake.broker_lite.broker.limits import MAX_OFFSETS, check_limit
from commitlake.broker_lite.broker.locks import QueueLocks
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.broker.slices import Slices, Steps
from commitlake.broker_lite.broker.statistics import Statistics
from commitlake.broker_lite.broker.topics import TopicTable
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.rocketmq.offset_keys import split_offset_key
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.ext_fields import to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import ConsumerGroupRequest

CLUSTER = "CLUSTER"
REGION = "MSG_REGION"
TRACE_ON = "TRACE_ON"
LONG_REQUESTS_AT_ONCE = 16
"""Clients whose long requests are worked on by turns; each may hold an answer of 16 MiB that is half made."""


class Broker:
    """What a broker is made of.

    Attributes:
        options: its settings.
        store: its messages.
        delivery: what happens to messages that do not go straight to their consumers.
        topics: its topics.
        groups: its consumer groups.
        clients: who is connected.
        locks: who reads which queue in order.
        held: pulls that wait for a message.
        slices: work that takes long.
        asked: what clients were asked for others, in the order of the times until which they may answer.
        statistics: what it has done.
        started_ms: when it was started.
        is_writable: whether the disk has room for more.
        property_suffix: what a broker of 5.x adds to the properties of every message, in their stored form.
    """

    def __init__(self, store: BrokerStore, options: BrokerOptions) -> None:
        self.options = options
        self.store = store
        self.delivery = delivery_of(store, options.timer_max_delay_ms)
        self.topics = TopicTable(store.config.topics, options, parking_topics(store))
        self.groups = GroupTable(
            store.config.groups, auto_create=options.auto_create_groups, max_groups=options.max_groups
        )
        self.clients = Clients(options.client_timeout_ms)
        self.locks = QueueLocks()
        self.held = HeldPulls()
        self.slices = Slices(LONG_REQUESTS_AT_ONCE)
        self.asked: deque[tuple[int, Channel, int]] = deque()
        self.started_ms = store.clock()
        self.statistics = Statistics(self.started_ms)
        self.is_writable = True
        marks = {CLUSTER: options.cluster, REGION: options.region, TRACE_ON: "true"}
        self.property_suffix = "".join(f"{name}\x01{value}\x02" for name, value in marks.items())
        self._resets: dict[tuple[str, str, int], int] = {}

    def now_ms(self) -> int:
        """The time by which messages are stored."""
        return self.store.clock()

    def topics_of_group(self, group: str) -> list[str]:
        """The topics that a group has consumed, or that its members want."""
        found = [topic for key in self.store.config.consumer_offsets.entries if (topic := _topic_of(key, group))]
        members = self.clients.consumers.get(group)
        return sorted({*found, *(members.subscriptions if members else ())})

    def check_offsets_room(self, topic: str, group: str, queue_id: int) -> None:
        """Refuse the offset of one more queue than are kept.

        Raises:
            LimitError: if there are too many, and this one is new.
        """
        offsets = self.store.config.consumer_offsets
        if offsets.count >= MAX_OFFSETS and offsets.get(topic, group, queue_id) is None:
            check_limit("offsets of all groups", MAX_OFFSETS, offsets.count + 1)

    def reset_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let a group go on at an offset; its next pull of the queue is sent there."""
        self.store.config.consumer_offsets.commit(topic, group, queue_id, offset)
        if group in self.clients.consumers:
            self._resets[topic, group, queue_id] = offset

    def is_reset(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether the group's consumers are still to be sent elsewhere: what they say of their progress is old."""
        return bool(self._resets) and (topic, group, queue_id) in self._resets

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Where a consumer is to go on, once, if somebody has reset its group."""
        return self._resets.pop((topic, group, queue_id), None) if self._resets else None

    def notify_members(self, groups: set[str]) -> Steps:
        """Tell the consumers of groups that members or subscriptions have changed: they share the queues anew."""
        for name in groups:
            config = self.groups.find(name)
            if config is None or not config.notify_consumer_ids_changed_enable:
                continue
            fields = to_ext_fields(ConsumerGroupRequest(name))
            for member in self.clients.members(name):
                member.channel.tell(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields))
                yield


def _topic_of(key: str, group: str) -> str | None:
    """The topic of a stored offset's key, if it is the group's."""
    topic, name = split_offset_key(key)
    return topic if name == group else None
