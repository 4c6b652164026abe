"""Subscriptions of groups at a time, and their clients, from the snapshots of `subscriptions`.

They show which groups consume a topic, and so all of its queues, also those in which a group has no offset.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.snapshot_tables import SUBSCRIBED, first_rows_after, rows_between
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter
from commitlake.pipelines.snapshot.progress import GroupTopic, SnapshotSource
from commitlake.pipelines.snapshot.table_append import HEARTBEAT
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX, strip_broadcast_suffix
from commitlake.schemas.times import EPOCH

BROADCASTING = "BROADCASTING"
"""Message model of a group in which every client gets every message."""
MAX_AGE = 2 * HEARTBEAT
"""Age up to which clients and filters count as current; an unchanged one is stored again at each heartbeat."""
MANY_CHANGES = 3
"""Number of changes of a subscription after which the group's clients are taken to disagree.

Each heartbeat of a client replaces the subscription of the others.
"""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SubscribedAt:
    """A group's subscription to a topic at a given time, and its number of clients.

    Attributes:
        wanted: Messages that the group wants.
        members: Number of its clients; None if not known.
        message_model: CLUSTERING or BROADCASTING; None if not known.
        note: A sentence that qualifies it.
        as_of: Last time at which a client subscribed so; None if not known, or if the user gives the choice.
    """

    wanted: SubscriptionFilter
    members: int | None = None
    message_model: str | None = None
    note: str = ""
    as_of: datetime.datetime | None = None


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions of a store's groups at one time: the messages that each group wants of each topic.

    Attributes:
        found: Known subscriptions.
        asked_at: Time at which a live broker was last asked: a group that it did not name then has no client. None if
            none was.
    """

    found: Mapping[GroupTopic, SubscribedAt] = field(default_factory=dict)
    asked_at: datetime.datetime | None = None

    def find_subscription(self, group_topic: GroupTopic) -> SubscribedAt:
        """Return a group's subscription to a topic; if it is not known, one to every message."""
        return self.found.get(group_topic) or SubscribedAt(SubscriptionFilter(), None if self.asked_at is None else 0)

    def with_overrides(self, overrides: Mapping[GroupTopic, SubscriptionFilter]) -> Subscriptions:
        """Return a copy in which subscriptions given by the user replace those in the lake."""
        stated = {
            key: replace(self.find_subscription(key), wanted=wanted, note="", as_of=None)
            for key, wanted in overrides.items()
        }
        return Subscriptions({**self.found, **stated}, self.asked_at)

    def at_later_time(self, later_time: datetime.datetime) -> Subscriptions:
        """Return a copy for a later time, without clients last seen more than `MAX_AGE` before it.

        A filter that was seen long before is still used, with a note.
        """
        oldest = later_time - MAX_AGE
        is_recent = self.asked_at is not None and self.asked_at >= oldest
        found = {
            key: replace(
                one,
                members=one.members if is_recent else None,
                note=one.note or _filter_age_note(one, later_time)
                if one.as_of is not None and one.as_of < oldest
                else one.note,
            )
            for key, one in self.found.items()
        }
        return Subscriptions(found, self.asked_at if is_recent else None)


def _filter_age_note(subscription: SubscribedAt, time: datetime.datetime) -> str:
    assert subscription.as_of is not None
    if subscription.wanted.selects_all:
        return ""
    hours = (time - subscription.as_of) / datetime.timedelta(hours=1)
    age = f"{hours / 24:,.0f} days" if hours >= 48 else f"{hours:.0f} hours" if hours >= 2 else f"{hours * 60:.0f} min"
    return f"its filter is that of {subscription.as_of:%Y-%m-%dT%H:%M:%SZ}, {age} before: no client has been seen since"


def subscriptions_at(table: DeltaTable, broker: str, as_of: datetime.datetime | None) -> Subscriptions:
    """Return what the groups of a store subscribed to at a time, or most recently.

    The newest may be of a later time than the newest row of `consumer_offsets`: a snapshot that finds all offsets
    unchanged adds no such row.

    A group without clients keeps the subscription that it had last. For a time before the first snapshot of
    subscriptions, the first snapshot is used, and a note says so.

    Args:
        broker: The store's name.
        as_of: The time; None for the newest.
    """
    return SubscriptionTimeline(table, broker, as_of).subscriptions_at_time(as_of)


class SubscriptionTimeline:
    """Subscriptions of a store's groups at several times in ascending order, from one pass over the table.

    Args:
        table: The table `subscriptions`.
        broker: The store's name.
        until: The last of the times; None for the newest subscriptions.
    """

    def __init__(self, table: DeltaTable, broker: str, until: datetime.datetime | None) -> None:
        self._rows: Sequence[Row] = list(rows_to_dicts(rows_between(table, SUBSCRIBED, broker, EPOCH, until)))
        self._next: Sequence[Row] = (
            # Rows after the time tell subscriptions that were not recorded until then.
            [] if until is None else list(rows_to_dicts(first_rows_after(table, SUBSCRIBED, broker, until)))
        )
        self._known, self._place = _SubscriptionHistory(), 0
        self._last: Subscriptions | None = None

    def subscriptions_at_time(self, time: datetime.datetime | None) -> Subscriptions:
        """Return the subscriptions at a time, which must not be earlier than in the previous call."""
        before = self._place
        while self._place < len(self._rows) and (time is None or self._rows[self._place]["as_of"] <= time):
            self._known.add_row(self._rows[self._place])
            self._place += 1
        if self._last is None or self._place > before:
            self._last = Subscriptions(self._known_subscriptions(), self._known.broker_asked_at)
        return self._last

    def _known_subscriptions(self) -> dict[GroupTopic, SubscribedAt]:
        """Return the subscriptions known so far, and for others the first one recorded later, with a note."""
        found = self._known.current_subscriptions()
        seen: set[tuple[str, GroupTopic]] = set()
        for row in (*self._rows[self._place :], *self._next):
            key = GroupTopic(row["group"], row["topic"])
            if (row["source"], key) in seen:
                continue
            seen.add((row["source"], key))
            if row["topic"] is not None and key not in found and row["expression"] is not None:
                since = f"{row['as_of']:%Y-%m-%dT%H:%M:%SZ}"
                choice = SubscriptionFilter.of(row["expression_type"], row["expression"])
                note = f"its subscription is known only from {since} on; that one is used"
                found[key] = SubscribedAt(choice, note=note)
        return found


class PastSubscriptions(NamedTuple):
    """Subscriptions of a store's groups at a time in the past, by message model.

    Attributes:
        wanted: Choice of each group.
        consumed: Topics to which clients of the group subscribe, so that each message goes to one of them.
        broadcast: Topics of which each client of the group gets every message.
    """

    wanted: Mapping[GroupTopic, SubscriptionFilter] = {}
    consumed: Collection[GroupTopic] = ()
    broadcast: Collection[GroupTopic] = ()


def read_subscriptions_over_time(
    table: DeltaTable, broker: str, times: Sequence[datetime.datetime]
) -> list[PastSubscriptions]:
    """Return the subscriptions of a store's groups at each of several times.

    Args:
        broker: The store's name.
        times: The times, in ascending order.

    Returns:
        The subscriptions at each time. The same object is returned again if nothing changed.
    """
    if not times:
        return []
    rows = rows_to_dicts(rows_between(table, SUBSCRIBED, broker, EPOCH, times[-1]))
    later: dict[GroupTopic, SubscriptionFilter] = {}
    for row in [*rows, *rows_to_dicts(first_rows_after(table, SUBSCRIBED, broker, times[-1]))]:
        if row["topic"] is not None and row["expression"] is not None:
            choice = SubscriptionFilter.of(row["expression_type"], row["expression"])
            later.setdefault(GroupTopic(row["group"], row["topic"]), choice)
    known = _SubscriptionHistory()
    found: list[PastSubscriptions] = []
    place = 0
    for time in times:
        before = place
        while place < len(rows) and rows[place]["as_of"] <= time:
            known.add_row(rows[place])
            place += 1
        # Nothing has changed since the time before, so its answer is used again, not copied.
        if found and place == before:
            found.append(found[-1])
        else:
            found.append(PastSubscriptions({**later, **known.wanted}, *known.consumed_and_broadcast_topics()))
    return found


class _SubscriptionHistory:
    """Subscriptions of a store's groups after the changes that were added so far, in the order of time.

    Attributes:
        wanted: Last known choice of each group.
    """

    def __init__(self) -> None:
        self.wanted: dict[GroupTopic, SubscriptionFilter] = {}
        self._taken: dict[str, list[datetime.datetime]] = {}  # the last two snapshots of each source
        self._sources: dict[GroupTopic, str] = {}
        self._gone: dict[GroupTopic, datetime.datetime | None] = {}
        self._newest: dict[GroupTopic, Row] = {}
        self._changes: Counter[GroupTopic] = Counter()

    def add_row(self, row: Row) -> None:
        """Apply the change in the next row of `subscriptions`."""
        source, time = row["source"], row["as_of"]
        taken = self._taken.setdefault(source, [])
        if row["topic"] is None:
            taken[:] = [*taken[-1:], time]
            return
        key = GroupTopic(row["group"], row["topic"])
        if row["source"] == SnapshotSource.BROKER:
            self._newest[key] = row
        if row["expression"] is None and self._sources.get(key) == source:
            # This row says that the group is gone, so it was last seen in the snapshot before.
            self._gone.setdefault(key, max((each for each in taken if each < time), default=None))
        if row["expression"] is not None:
            self._sources[key] = source
            # The group is back.
            self._gone.pop(key, None)
            now = SubscriptionFilter.of(row["expression_type"], row["expression"])
            self._changes[key] += key in self.wanted and self.wanted[key] != now
            self.wanted[key] = now

    @property
    def broker_asked_at(self) -> datetime.datetime | None:
        """Time of the last snapshot that was taken from a live broker; None if none was."""
        return max(self._taken.get(SnapshotSource.BROKER, ()), default=None)

    def _last_seen_time(self, group_topic: GroupTopic) -> datetime.datetime | None:
        """Return the time of the last snapshot in which a group subscribed to a topic; None if it is not known."""
        if group_topic in self._gone:
            return self._gone[group_topic]
        return max(self._taken[self._sources[group_topic]], default=None)

    def consumed_and_broadcast_topics(self) -> tuple[frozenset[GroupTopic], frozenset[GroupTopic]]:
        """Return the (group, topic) pairs that are consumed, and those that are broadcast, as of the last row."""
        broadcast = frozenset(key for key, row in self._newest.items() if row["message_model"] == BROADCASTING)
        consumed = frozenset(key for key, row in self._newest.items() if row["members"] and key not in broadcast)
        return consumed, broadcast

    def current_subscriptions(self) -> dict[GroupTopic, SubscribedAt]:
        """Return the subscriptions as of the last added row."""
        return {
            key: replace(
                _make_subscription(
                    choice, self._newest.get(key), self._changes[key], is_asked=self.broker_asked_at is not None
                ),
                as_of=self._last_seen_time(key),
            )
            for key, choice in self.wanted.items()
        }


def _make_subscription(
    message_filter: SubscriptionFilter, newest_row: Row | None, filter_change_count: int, *, is_asked: bool
) -> SubscribedAt:
    """Return a group's subscription to a topic, with its number of clients and a note if its filter often changes.

    Args:
        message_filter: Its last known choice.
        newest_row: The last row that came from a live broker; None if there is none.
        filter_change_count: How often its choice changed before.
        is_asked: True if a live broker was ever asked.
    """
    note = message_filter.problem
    if filter_change_count >= MANY_CHANGES:
        note = f"its clients subscribe differently: the filter has changed {format_count(filter_change_count, 'time')}"
    if newest_row is None:
        return SubscribedAt(message_filter, 0 if is_asked else None, note=note)
    members = newest_row["members"]
    return SubscribedAt(message_filter, len(members or ()), newest_row["message_model"], note)


def find_consumers_by_topic(
    topics_with_offsets: Collection[GroupTopic], subscriptions: Subscriptions, is_selected: Callable[[GroupTopic], bool]
) -> dict[str, dict[str, SubscribedAt]]:
    """Return, by topic, the groups of a store that consume all queues of the topic.

    Besides those with an offset in the topic, these are groups whose clients subscribe to it, and the group to which a
    retry topic belongs. Groups that broadcast are left out: each of their clients keeps its own offsets.

    Args:
        topics_with_offsets: Groups with a topic in which they have an offset.
        is_selected: Returns whether a group and topic is of interest.
    """
    keys = {*topics_with_offsets, *(GroupTopic(key.group, RETRY_PREFIX + key.group) for key in topics_with_offsets)}
    # Without a client now, a subscription alone shows no consumer.
    keys |= {key for key, one in subscriptions.found.items() if one.members}
    found: dict[str, dict[str, SubscribedAt]] = defaultdict(dict)
    for key in sorted(keys):
        subscribed = find_owner_subscription(key, subscriptions)
        if is_selected(key) and subscribed.message_model != BROADCASTING:
            found[key.topic][key.group] = subscribed
    return found


def find_owner_subscription(group_topic: GroupTopic, subscriptions: Subscriptions) -> SubscribedAt:
    """Return a group's subscription to a topic; in its own retry topic, a group wants all messages.

    Args:
        group_topic: The topic, and the group as in the key of its offsets, which also shows whether it broadcasts.
    """
    group = strip_broadcast_suffix(group_topic.group)
    found = subscriptions.find_subscription(group_topic._replace(group=group))
    if group != group_topic.group:
        found = replace(found, message_model=BROADCASTING)
    if group_topic.topic.startswith(RETRY_PREFIX):
        return SubscribedAt(ALL, found.members, found.message_model)
    return found
