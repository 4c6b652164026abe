"""Sources of offsets: the stores of a lake, or stores that are not archived."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots, snapshot_brokers
from commitlake.pipelines.lag.counting import BacklogCounter, Queue
from commitlake.pipelines.lag.offsets import offsets_at
from commitlake.pipelines.lag.queues import QueueSpan
from commitlake.pipelines.lag.subscriptions import SubscribedAt, Subscriptions, subscriptions_at
from commitlake.pipelines.lag.wanted import ALL, GroupFilter
from commitlake.pipelines.offsets.lake_queues import FirstMessage, LakeQueues
from commitlake.pipelines.offsets.store_queues import StoreQueues
from commitlake.pipelines.snapshot.files import read_store_progress
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, OffsetOwner
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX


class QueueSpans(Protocol):
    """Queues of one store."""

    def spans(self, topics: Collection[str], until: datetime.datetime | None = None) -> dict[Queue, QueueSpan]:
        """Return the first and end offsets of the queues of topics."""


class QueueMessages(QueueSpans, Protocol):
    """Queues of one store, and their messages: `LakeQueues` or `StoreQueues`."""

    def first_since(
        self, topics: Collection[str], since: datetime.datetime, floors: Mapping[Queue, int]
    ) -> dict[Queue, FirstMessage]:
        """Return the first message since a time for each queue that has one."""

    def reaches(self, at: datetime.datetime) -> bool:
        """Return whether the log up to a time is available."""

    def count(self, topics: Collection[str], counts: Sequence[BacklogCounter]) -> dict[Queue, QueueSpan]:
        """Feed messages to counters, and return the first and end offsets of queues."""


@dataclass(frozen=True, slots=True)
class OffsetSource:
    """One store.

    Attributes:
        broker: Name of the store.
        queues: Queues of the store.
        subscriptions: Last known subscriptions of groups.
        newest: Last known offsets of groups.
    """

    broker: str
    queues: QueueMessages
    subscriptions: Subscriptions
    newest: Mapping[OffsetOwner, int]

    @property
    def groups(self) -> set[str]:
        """The known groups."""
        return {position.group for position in self.newest} | {key.group for key in self.subscriptions.found}

    def topics_of(self, group: str) -> set[str]:
        """Return the topics that a group consumes, without its retry topics."""
        known = {position.topic for position in self.newest if position.group == group}
        known |= {key.topic for key in self.subscriptions.found if key.group == group}
        return {topic for topic in known if not topic.startswith(RETRY_PREFIX)}

    def wanted(self, group: str, topic: str) -> GroupFilter:
        """Return a group's choice of messages of a topic; all messages if it is not known."""
        return ALL if topic.startswith(RETRY_PREFIX) else self.subscriptions.of(GroupTopic(group, topic)).wanted


def lake_sources(lake: Lake, brokers: Collection[str] = ()) -> list[OffsetSource]:
    """Return the stores of a lake.

    Args:
        brokers: Stores to return; all if empty.

    Raises:
        LakeError: There is no lake.
        QueryError: A table cannot be read.
    """
    messages = lake.table("messages")
    offsets, subscribed = open_snapshots(lake, OFFSETS), open_snapshots(lake, SUBSCRIBED)
    last = read_last_commit(lake.uri("messages"))
    names = set(last.stores if last is not None else ())
    if offsets is not None:
        names |= set(snapshot_brokers(offsets, OFFSETS))
    now = datetime.datetime.now(datetime.UTC)
    found = []
    for broker in sorted(brokers or names):
        moment = None if offsets is None else offsets_at(offsets, broker, None).get(OffsetKind.GROUP)
        newest = {} if moment is None else {position: offset.low for position, offset in moment.offsets.items()}
        subscriptions = Subscriptions() if subscribed is None else subscriptions_at(subscribed, broker, now)
        found.append(OffsetSource(broker, LakeQueues(messages, broker, lake.bodies), subscriptions, newest))
    return found


def store_sources(stores: Iterable[Store]) -> list[OffsetSource]:
    """Return stores in folders of this machine, with the offsets and filters from their own files.

    Raises:
        CommitLogError: A store cannot be read.
    """
    found = []
    now = datetime.datetime.now(datetime.UTC)
    for store in stores:
        progress = read_store_progress(store, now)
        newest: dict[OffsetOwner, int] = {}
        subscribed: dict[GroupTopic, SubscribedAt] = {}
        if progress is not None:
            newest = {place: offset for place, offset in progress.offsets.items() if place.kind == OffsetKind.GROUP}
            for key, one in progress.subscriptions.items():
                subscribed[key] = SubscribedAt(GroupFilter.of(one.expression_type or "", one.expression or ""))
        found.append(OffsetSource(store.broker, StoreQueues(store), Subscriptions(subscribed), newest))
    return found
