"""State that all request handlers of a broker share, without a network, and the handlers' types."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping

from commitlake.broker_lite.broker.clients import Clients
from commitlake.broker_lite.broker.groups import GroupTable, QueueLocks
from commitlake.broker_lite.broker.held_pulls import HeldPulls
from commitlake.broker_lite.broker.limits import (
    MAX_OFFSETS,
    MAX_STATUSES_BYTES,
    MAX_STATUSES_BYTES_IN_ALL,
    MAX_STATUSES_BYTES_OF_ADDRESS,
    Quotas,
    check_limit,
)
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.broker.slice_scheduler import SliceScheduler, Steps
from commitlake.broker_lite.broker.statistics import Statistics
from commitlake.broker_lite.broker.store_interfaces import BrokerStore
from commitlake.broker_lite.broker.store_layouts import internal_topics, make_deliveries
from commitlake.broker_lite.broker.topics import TopicTable
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.rocketmq.topics import split_offset_key
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.ext_fields import to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import ConsumerGroupRequest

LONG_REQUESTS_AT_ONCE = 16
"""Clients whose long requests are processed in turns; each may hold a partial answer of up to 16 MiB."""


class Broker:
    """State of a broker: its store, topics, groups, clients and waiting requests.

    Attributes:
        options: settings of the broker.
        store: store of its messages.
        delivery: delays, retries, dead letters and transactions.
        topics: topics of the broker.
        groups: consumer groups of the broker.
        clients: connected producers and consumers.
        locks: locks of consumers that read a queue in order.
        held: pulls that wait for a message.
        slices: scheduler of long requests.
        relayed: requests relayed to clients that are not answered yet, by deadline: (deadline in ms, channel, opaque).
        kept_answers: bytes of clients' answers that are kept until other clients have answered, too.
        statistics: counts and rates of messages and requests.
        started_ms: start time, ms since the epoch.
        is_writable: False when the disk is too full for more messages.
        property_suffix: properties that a 5.x broker adds to every message, in stored form.
    """

    def __init__(self, store: BrokerStore, options: BrokerOptions) -> None:
        self.options = options
        self.store = store
        self.delivery = make_deliveries(store, options.timer_max_delay_ms)
        self.topics = TopicTable(store.config.topics, options, internal_topics(store))
        self.groups = GroupTable(
            store.config.groups, auto_create=options.auto_create_groups, max_groups=options.max_groups
        )
        self.clients = Clients(options.client_timeout_ms)
        self.locks = QueueLocks()
        self.held = HeldPulls()
        self.slices = SliceScheduler(LONG_REQUESTS_AT_ONCE)
        self.relayed: deque[tuple[int, Channel, int]] = deque()
        self.kept_answers = Quotas(
            of_one=MAX_STATUSES_BYTES, of_address=MAX_STATUSES_BYTES_OF_ADDRESS, in_all=MAX_STATUSES_BYTES_IN_ALL
        )
        self.started_ms = store.clock()
        self.statistics = Statistics(self.started_ms)
        self.is_writable = True
        self.property_suffix = "".join(f"{name}\x01{value}\x02" for name, value in options.added_properties().items())
        self._resets: dict[tuple[str, str, int], int] = {}

    def now_ms(self) -> int:
        """Return the current time of the store's clock, ms since the epoch."""
        return self.store.clock()

    def topics_of_group(self, group: str) -> list[str]:
        """Return the topics that a group has offsets in or that its members subscribe to, sorted."""
        found = [
            topic for key in self.store.config.consumer_offsets.entries if (topic := _topic_of_offset_key(key, group))
        ]
        members = self.clients.consumers.get(group)
        return sorted({*found, *(members.subscriptions if members else ())})

    def check_offset_limit(self, topic: str, group: str, queue_id: int) -> None:
        """Raise an error if one more stored offset would exceed the limit.

        Raises:
            CommandError: if the limit is reached and the queue has no offset of this group yet.
        """
        offsets = self.store.config.consumer_offsets
        if offsets.count >= MAX_OFFSETS and offsets.get(topic, group, queue_id) is None:
            check_limit("offsets of all groups", MAX_OFFSETS, offsets.count + 1)

    def reset_offset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set a group's offset in a queue, and mark the reset as pending until the group's next pull receives it."""
        self.store.config.consumer_offsets.commit(topic, group, queue_id, offset)
        if group in self.clients.consumers:
            self._resets[topic, group, queue_id] = offset

    def is_reset_pending(self, topic: str, group: str, queue_id: int) -> bool:
        """Return whether the group has not received an offset reset yet, so that offsets it commits are outdated."""
        return bool(self._resets) and (topic, group, queue_id) in self._resets

    def take_pending_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Remove a pending reset of a group's offset in a queue, and return its offset; None if there is none."""
        return self._resets.pop((topic, group, queue_id), None) if self._resets else None

    def notify_members(self, groups: set[str]) -> Steps:
        """Notify the consumers of groups that members or subscriptions have changed, so that they rebalance.

        A connection with several members of a group is notified once, as by RocketMQ.
        """
        for name in groups:
            config = self.groups.find_or_create(name)
            if config is None or not config.notify_consumer_ids_changed_enable:
                continue
            request = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, to_ext_fields(ConsumerGroupRequest(name)))
            notified: set[Channel] = set()
            for member in self.clients.members(name):
                if member.channel not in notified:
                    notified.add(member.channel)
                    member.channel.send_one_way(request)
                yield


def _topic_of_offset_key(offset_key: str, group: str) -> str | None:
    """Return the topic of a key in the offset table if the key belongs to the group, else None."""
    topic, name = split_offset_key(offset_key)
    return topic if name == group else None


Answering = Generator[None, None, Command | None]
"""Handler of a long request: a generator that yields between steps of at most a few milliseconds, see `Slices`."""

Handler = Callable[[Broker, Channel, Command], Command | Answering | None]
"""Function that returns the answer; None if there is no answer, or if it is sent later.

It raises errors of schemas.remoting.errors and broker_lite.errors, which the caller converts to answers.
"""

Handlers = Mapping[int, Handler]
"""Handlers by request code."""
