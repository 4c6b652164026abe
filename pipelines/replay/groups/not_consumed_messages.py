"""Messages that a consumer group has not consumed, by its offsets at a time.

A group consumes a topic by the rule of `commitlake lag`: all queues of a topic in which it has an offset, or to which
its clients subscribe. Where it has no offset, it has consumed nothing.

Offsets of a topic that was deleted and created again begin at 0. An offset belongs to the topic that existed at its
time: messages of topics that were deleted before are not chosen, and those of later ones all are.

Between two snapshots, messages from the smaller offset on are chosen. If the second offset is the smaller one, or there
is only one, nothing is known of the time between: that is an error.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS, SUBSCRIBED, open_snapshots
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.rocketmq.admin import Admin
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.messages_table import ArrowMessagesTable
from commitlake.pipelines.lag.offsets import OffsetAt, OffsetState, offsets_at
from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.lag.store_lag import offsets_by_kind, subscriptions_of_snapshot
from commitlake.pipelines.lag.subscriptions import (
    BROADCASTING,
    Subscriptions,
    find_consumers_by_topic,
    subscriptions_at,
)
from commitlake.pipelines.offsets.offset_sources import LakeQueues, QueueSpans, StoreQueues
from commitlake.pipelines.replay.errors import ReplayError, UnknownGroupError
from commitlake.pipelines.snapshot.broker_queries import fetch_group_snapshot
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind
from commitlake.pipelines.snapshot.store_file_reader import read_store_snapshot
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import format_iso_time

_SHOWN = 3
_STORE_IT = "'commitlake snapshot' and 'archive' store them, and 'commitlake lag' shows the groups"


class QueueStart(NamedTuple):
    """Queue offset from which on a consumer group has not consumed a queue's messages.

    Attributes:
        offset: queue offset of the message.
        floor: physical offset; records before it are from a deleted topic of the same name.
        restart: physical offset at which the topic was created again after the time of the group's offset, so that all
            messages from there on are chosen; None if it was not.
        is_committed: False if the group has no offset in the queue.
    """

    offset: int
    floor: int = 0
    restart: int | None = None
    is_committed: bool = True


@dataclass(frozen=True, slots=True)
class NotConsumed:
    """Result of a search for the messages that a consumer group has not consumed.

    Attributes:
        group: the consumer group.
        queues: first message by store, topic and queue.
        topics: stores and topics of which the group consumes all queues; those that are not in `queues` are chosen
            from their first message.
        as_of: by store, time of the offsets.
        notes: sentences on what is chosen.
        warnings: sentences on messages that are not chosen because it is not known whether the group consumes them.
    """

    group: str
    queues: Mapping[Queue, QueueStart] = field(default_factory=dict)
    topics: Collection[tuple[str, str]] = ()
    as_of: Mapping[str, datetime.datetime] = field(default_factory=dict)
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()

    @property
    def topic_names(self) -> set[str]:
        """Topics that the group consumes on any broker."""
        return {topic for _, topic in self.topics} | {queue.topic for queue in self.queues}

    def committed_offset(self, broker: str, topic: str, queue_id: int) -> int | None:
        """Return the group's offset in a queue; None if it has none."""
        start = self.queues.get(Queue(broker, topic, queue_id))
        return start.offset if start is not None and start.is_committed else None


class OffsetLogRange(NamedTuple):
    """Log range for which a group's offset in a queue is valid, as the topic may have been deleted and created again.

    Attributes:
        floor: physical offset; records before it are from a topic that had been deleted at the time of the offset.
        restart: physical offset from which records are from a topic that was created later; None if none was.
    """

    floor: int
    restart: int | None


class _StoreOffsets(NamedTuple):
    """One store's group offsets and subscriptions.

    Attributes:
        moment: offsets of its groups.
        subscriptions: subscriptions of its groups.
        queues: its queues.
        has_messages: returns whether it has a message of a topic.
    """

    moment: OffsetState
    subscriptions: Subscriptions
    queues: QueueSpans
    has_messages: Callable[[str], bool]


def find_not_consumed_in_lake(
    lake: Lake,
    messages_table: DeltaTable,
    group: str,
    brokers: Iterable[str],
    is_topic_selected: Callable[[str], bool],
    offsets_time: datetime.datetime | None = None,
) -> NotConsumed:
    """Find the messages in a lake that a group has not consumed, by its offsets in the lake.

    Args:
        group: the consumer group.
        brokers: the stores.
        is_topic_selected: returns whether a topic is of interest.
        offsets_time: the time; None for the last snapshots.

    Raises:
        ReplayError: if no snapshot has the group, or its offsets at the time are not known.
    """
    offsets, subscribed = open_snapshots(lake, OFFSETS), open_snapshots(lake, SUBSCRIBED)
    stores: list[_StoreOffsets] = []
    missing: list[str] = []
    for broker in sorted(brokers):
        moment = None if offsets is None else offsets_at(offsets, broker, offsets_time).get(OffsetKind.GROUP)
        if moment is None:
            missing.append(broker)
            continue
        subscriptions = Subscriptions() if subscribed is None else subscriptions_at(subscribed, broker, offsets_time)

        # The default binds this store; the loop's own variable would be that of the last one.
        def has_messages(topic: str, broker: str = broker) -> bool:
            where = f"broker = {text_literal(broker)} AND topic = {text_literal(topic)}"
            found = run_sql(messages_table, "messages", f"SELECT 1 FROM messages WHERE {where} LIMIT 1")
            return any(batch.num_rows for batch in found)

        stores.append(
            _StoreOffsets(moment, subscriptions, LakeQueues(ArrowMessagesTable(messages_table), broker), has_messages)
        )
    when = "" if offsets_time is None else " at that time"
    then = "" if offsets_time is None else f" at or before {_time_text(offsets_time)}"
    warnings = [
        f"{broker}: the lake has no snapshot of its groups{then}: none of its messages is chosen" for broker in missing
    ]
    if not any(_is_known_group(group, store) for store in stores):
        raise UnknownGroupError(f"the lake has no offsets of the group {group!r}{when}. {_STORE_IT}")
    return _join_results_of_stores(group, stores, is_topic_selected, warnings)


def find_not_consumed_in_stores(
    stores: Iterable[Store], group: str, is_topic_selected: Callable[[str], bool]
) -> NotConsumed:
    """Find the messages in stores that a group has not consumed, by its offsets in the stores' own files.

    Args:
        group: the consumer group.
        is_topic_selected: returns whether a topic is of interest.

    Raises:
        ReplayError: if no store has the group, or it broadcasts.
    """
    found: list[_StoreOffsets] = []
    warnings: list[str] = []
    for store in stores:
        progress = read_store_snapshot(store, datetime.datetime.now(datetime.UTC))
        if progress is None or OffsetKind.GROUP not in progress.taken:
            warnings.append(f"{store.broker}: its offsets cannot be read: none of its messages is chosen")
            continue
        queues = StoreQueues(store)

        # As above, the default binds this store.
        def has_messages(topic: str, queues: StoreQueues = queues) -> bool:
            return bool(queues.queue_spans({topic}))

        moment = offsets_by_kind(progress)[OffsetKind.GROUP]
        found.append(_StoreOffsets(moment, subscriptions_of_snapshot(progress), queues, has_messages))
    if not any(_is_known_group(group, store) for store in found):
        raise UnknownGroupError(f"the store has no offsets of the group {group!r}: check the group's name")
    return _join_results_of_stores(group, found, is_topic_selected, warnings)


def find_not_consumed_live(
    admin: Admin, group: str, topics: Iterable[str], brokers: Collection[str] = ()
) -> NotConsumed:
    """Find the messages of live topics that a group has not consumed, by its offsets at the brokers.

    Args:
        group: the consumer group.
        brokers: brokers to query; all if empty.

    Raises:
        ReplayError: if no broker has the group, or it broadcasts one of the topics.
    """
    wanted = frozenset(topics)
    found: list[_StoreOffsets] = []
    for broker in sorted(admin.clusters().broker_addr_table):
        if not brokers or broker in brokers:
            progress, queues = fetch_group_snapshot(admin, group, broker), _LiveQueues(admin, broker)
            moment = offsets_by_kind(progress)[OffsetKind.GROUP]
            found.append(_StoreOffsets(moment, subscriptions_of_snapshot(progress), queues, queues.has_messages))
    if not any(_is_known_group(group, store) for store in found):
        raise UnknownGroupError(
            f"the broker has neither offsets nor clients of the group {group!r}: check the group's name"
        )
    return _join_results_of_stores(group, found, wanted.__contains__, [])


class _LiveQueues:
    """First and end offsets of a live broker's queues.

    Args:
        admin: client that queries the broker.
        broker: the broker's name.
    """

    def __init__(self, admin: Admin, broker: str) -> None:
        self._admin, self._broker = admin, broker

    def queue_spans(
        self,
        topics: Collection[str],
        until: datetime.datetime | None = None,  # noqa: ARG002
    ) -> dict[Queue, QueueSpan]:
        """Return the current first and end offsets of the queues of topics; `until` is ignored."""
        found: dict[Queue, QueueSpan] = {}
        for topic in sorted(topics):
            stats = self._admin.broker_topic_stats(topic, self._broker)
            for queue, offsets in {} if stats is None else stats.offset_table.items():
                span = QueueSpan(offsets.min_offset, offsets.max_offset)
                found[Queue(self._broker, queue.topic, queue.queue_id)] = span
        return found

    def has_messages(self, topic: str) -> bool:
        """Return whether the broker has a message of a topic."""
        return any((span.first or 0) < span.end for span in self.queue_spans({topic}).values())


def _join_results_of_stores(
    group: str, stores: Sequence[_StoreOffsets], is_topic_selected: Callable[[str], bool], warnings: list[str]
) -> NotConsumed:
    queues: dict[Queue, QueueStart] = {}
    topics: set[tuple[str, str]] = set()
    notes: list[str] = []
    for store in stores:
        # Before the offsets: those of a group that broadcasts are left from earlier, and would mean nothing.
        _check_does_not_broadcast(group, store.subscriptions, is_topic_selected)
        _check_offsets_are_known(group, store.moment, is_topic_selected)
        names = _consumed_topics(group, store, is_topic_selected)
        topics |= {(store.moment.broker, topic) for topic in names}
        found, more = _queue_starts(group, store, names, is_topic_selected)
        queues |= found
        notes += more
    consumed = {topic for _, topic in topics} | {queue.topic for queue in queues}
    if not consumed:
        warnings.append(f"the group {group} is not known to consume any of the topics: no message is chosen")
    for store in stores:
        broker = store.moment.broker
        lacking = sorted(topic for topic in consumed if not _consumes_topic(broker, topic, topics, queues))
        warnings += [
            f"the group {group} consumes {topic} on another broker, and is not known to consume it on {broker}: its "
            "messages there are not chosen"
            for topic in lacking
            if store.has_messages(topic)
        ]
    as_of = {store.moment.broker: store.moment.taken for store in stores}
    return NotConsumed(group, queues, topics, as_of, notes, warnings)


def _check_does_not_broadcast(
    group: str, subscriptions: Subscriptions, is_topic_selected: Callable[[str], bool]
) -> None:
    """Raise an error if a group consumes a topic in broadcasting mode, where only its clients have the offsets."""
    for key, one in sorted(subscriptions.found.items()):
        if key.group == group and one.message_model == BROADCASTING and is_topic_selected(key.topic):
            raise ReplayError(
                f"the group {group} consumes {key.topic} by broadcasting: each of its clients keeps its own offsets, "
                "so what it has consumed is not known"
            )


def _is_known_group(group: str, store: _StoreOffsets) -> bool:
    return any(position.group == group for position in store.moment.offsets) or any(
        key.group == group for key in store.subscriptions.found
    )


def _consumes_topic(
    broker: str, topic: str, consumed_topics: Collection[tuple[str, str]], consumed_queues: Mapping[Queue, QueueStart]
) -> bool:
    return (broker, topic) in consumed_topics or any(queue[:2] == (broker, topic) for queue in consumed_queues)


def _check_offsets_are_known(group: str, moment: OffsetState, is_topic_selected: Callable[[str], bool]) -> None:
    """Raise an error if snapshots do not tell a group's offsets at a time."""
    if moment.taken_next is None or moment.at == moment.taken:
        return
    unknown: dict[str, OffsetAt] = {
        f"{position.topic}/{position.queue_id}": offset
        for position, offset in sorted(moment.offsets.items())
        if position.group == group and is_topic_selected(position.topic) and offset.high is None
    }
    if not unknown:
        return
    was_set_back = any(offset.reached is not None for offset in unknown.values())
    what = "was set back" if was_set_back else "got its first offset, or lost its last one,"
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    before, after = _time_text(moment.taken), _time_text(moment.taken_next)
    raise ReplayError(
        f"{moment.broker}: the offsets of the group {group} at {_time_text(moment.at)} are not known for "
        f"{', '.join([*unknown][:_SHOWN])}{more}: the group {what} between the snapshots of {before} and {after}. "
        f"--offsets-at {before} takes its offsets before that, and --offsets-at {after} those after it"
    )


def _consumed_topics(group: str, store: _StoreOffsets, is_topic_selected: Callable[[str], bool]) -> set[str]:
    """Return the topics all of whose queues a group consumes."""

    def is_chosen_topic(group_topic: GroupTopic) -> bool:
        return group_topic.group == group and is_topic_selected(group_topic.topic)

    committed = {GroupTopic(group, position.topic) for position in store.moment.offsets if position.group == group}
    return set(find_consumers_by_topic(committed, store.subscriptions, is_chosen_topic))


def _queue_starts(
    group: str, store: _StoreOffsets, topic_names: Collection[str], is_topic_selected: Callable[[str], bool]
) -> tuple[dict[Queue, QueueStart], list[str]]:
    """Return, for each queue, the offset from which on a group has not consumed, and notes on uncertain offsets."""
    moment = store.moment
    committed = {
        Queue(moment.broker, position.topic, position.queue_id): offset
        for position, offset in moment.offsets.items()
        if position.group == group and is_topic_selected(position.topic)
    }
    topics = {queue.topic for queue in committed}.union(topic_names)
    now = store.queues.queue_spans(topics)
    lives = find_offset_log_ranges(store.queues, now, moment.at)
    found: dict[Queue, QueueStart] = {}
    for queue in committed.keys() | {queue for queue in now if queue.topic in topic_names}:
        offset = committed.get(queue)
        low = 0 if offset is None else offset.low
        life = lives.get(queue, OffsetLogRange(0, None))
        found[queue] = QueueStart(low, life.floor, life.restart, is_committed=offset is not None)
    return found, [*_notes_on_uncertain_offsets(group, moment, committed), *_notes_on_queues(moment.broker, found, now)]


def find_offset_log_ranges(
    queues: QueueSpans, current_spans: Mapping[Queue, QueueSpan], offsets_time: datetime.datetime
) -> dict[Queue, OffsetLogRange]:
    """Return, for queues of topics that were created again, the log range for which a group's offset is valid.

    Args:
        queues: the queues of a store.
        current_spans: first and end offsets of the queues in question.
        offsets_time: time of a group's offsets.
    """
    floors = {queue: span.floor for queue, span in current_spans.items() if span.floor is not None}
    then = queues.queue_spans({queue.topic for queue in floors}, offsets_time)
    found = {}
    for queue, restart in floors.items():
        floor = then[queue].floor or 0 if queue in then else 0
        # If both are the same, the topic was created again before that time, so the offsets are of the present topic.
        found[queue] = OffsetLogRange(floor, None if restart == floor else restart)
    return found


def _notes_on_uncertain_offsets(
    group: str, moment: OffsetState, committed_offsets: Mapping[Queue, OffsetAt]
) -> Iterable[str]:
    if moment.at == moment.taken or not committed_offsets:
        return
    at, taken = _time_text(moment.at), _time_text(moment.taken)
    if moment.taken_next is None:
        yield f"{moment.broker}: {group} may have consumed some of them between {taken} and {at}"
    elif between := sum((offset.high or offset.low) - offset.low for offset in committed_offsets.values()):
        yield (
            f"{moment.broker}: {group} consumed {format_count(between, 'message')} between the snapshots of {taken} "
            f"and {_time_text(moment.taken_next)}, perhaps before {at}: they are chosen, too"
        )


def _notes_on_queues(
    broker: str, queue_starts: Mapping[Queue, QueueStart], known_queues: Collection[Queue]
) -> Iterable[str]:
    without = [queue for queue, start in queue_starts.items() if not start.is_committed and queue in known_queues]
    if without:
        yield (
            f"{broker}: no committed offset in {format_count(len(without), 'queue')} of {_topics_text(without)}: "
            "chosen from the first message"
        )
    if again := [queue for queue, start in queue_starts.items() if start.floor and start.restart is None]:
        yield (
            f"{broker}: {_topics_text(again)}: deleted and created again; messages of the deleted topic are not chosen"
        )
    if later := [queue for queue, start in queue_starts.items() if start.restart is not None]:
        yield (
            f"{broker}: {_topics_text(later)}: deleted and created again after the time of the offsets; all messages "
            "of the new topic are chosen"
        )


def _topics_text(queues: Iterable[Queue]) -> str:
    names = sorted({queue.topic for queue in queues})
    more = f" and {format_count(len(names) - _SHOWN, 'other topic')}" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _time_text(moment: datetime.datetime) -> str:
    return format_iso_time(moment, "milliseconds" if moment.microsecond else "seconds")
