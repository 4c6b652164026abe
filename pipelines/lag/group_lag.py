"""Lag of every group in every queue of a store at a time.

If an offset is not known exactly, a row has bounds. The lower bound counts from the largest offset that the group can
have had, the upper bound from the smallest.

A group that has an offset in a queue of a topic consumes all queues of the topic. In a queue in which it has no offset,
its messages count from the first one on, as `mqadmin consumerProgress` counts them, and a note says so. The same holds
for a topic in which the group has clients but no offset, and for the group's retry topic, but not for groups that
broadcast.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

from commitlake.pipelines.lag.backlog_counting import Backlog, BacklogCounter, LagCursor, OffsetRangeCounter, Queue
from commitlake.pipelines.lag.offsets import OffsetAt, OffsetState
from commitlake.pipelines.lag.queue_offset_spans import MessageCounter, QueueSpan
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter
from commitlake.pipelines.lag.subscriptions import (
    BROADCASTING,
    SubscribedAt,
    Subscriptions,
    find_consumers_by_topic,
    find_owner_subscription,
)
from commitlake.pipelines.lag.verdicts import NOTHING, FigureBounds, LagJudgement, Movement, lag_verdict
from commitlake.pipelines.snapshot.progress import GroupTopic, OffsetKind, OffsetOwner
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.topics import (
    BROADCAST_SUFFIX,
    RETRY_PREFIX,
    is_system_group,
    strip_broadcast_suffix,
)
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import epoch_ms, from_ms

BROADCASTS = "the group broadcasts: its clients keep their own offsets"
"""Note on a group that broadcasts."""
NO_OFFSET = "no committed offset: counted from the queue's first message"
"""Note on a queue in which the group has no offset."""

UNKNOWN_FILTER = (
    "its filter is not known, so this is the most that may wait: a snapshot of the live broker (--namesrv) has it, and "
    "--filter gives it"
)
"""Note on a group whose subscription is not known."""


class LagRow(NamedTuple):
    """Lag of a group in a queue, with a verdict on it.

    Attributes:
        broker: The store's name.
        kind: group; retry for `%RETRY%` topics; delay, timer or half, or retry_store, see `waiting`.
        as_of: Time of these figures.
        offset: Offset of the next message that the group consumes.
        end: Offset of the queue's next message; None if no message of the queue is known.
        messages: Messages behind that the group wants.
        lost: Messages that the group wants, and that the broker deleted before the group consumed them.
        log_start: Physical offset at which the broker's log began; None if not known.
        compared_at: Time of the earlier snapshot from which the rates are measured; None if there is none.
        bytes: Size of their records in the log.
        seconds: Time that the next message has been waiting.
        next_time: Store time of the next message; None if no message is known to wait.
        last_consumed_time: Store time of the message just before `offset`, whether the group wants it or not, as
            QueueOffsetPair.lastTimestamp; None if the broker did not have that message any more, or held it back.
        judged: The verdict.
        filter: Subscription of the group as text; None if not known. The lower bounds are 0 then.
        filter_as_of: Last time at which a client subscribed so; None if not known, or if the user gives the filter.
        members: Number of its clients; None if not known.
        broadcasts: True if each client gets every message.
        notes: Sentences that qualify these figures.
    """

    broker: str
    kind: str
    group: str
    topic: str
    queue_id: int
    as_of: datetime.datetime
    offset: OffsetAt
    end: int | None
    messages: FigureBounds
    bytes: FigureBounds
    seconds: FigureBounds
    next_time: datetime.datetime | None
    judged: LagJudgement
    last_consumed_time: datetime.datetime | None = None
    filter: str | None = None
    filter_as_of: datetime.datetime | None = None
    members: int | None = None
    broadcasts: bool = False
    lost: FigureBounds = NOTHING
    log_start: int | None = None
    compared_at: datetime.datetime | None = None
    notes: tuple[str, ...] = ()


def is_selected_offset_owner(selection: Selection, owner: OffsetOwner) -> bool:
    """Return whether the group and topic of an offset are selected; False for the broker's own groups."""
    return (
        not is_system_group(owner.group)
        and (
            not selection.groups or not {owner.group, strip_broadcast_suffix(owner.group)}.isdisjoint(selection.groups)
        )
        and is_selected_topic(selection, owner.topic)
    )


def is_selected_group(selection: Selection, group_topic: GroupTopic) -> bool:
    """Return whether a group's consumption of a topic is selected."""
    return is_selected_offset_owner(selection, OffsetOwner(OffsetKind.GROUP, *group_topic, 0))


def is_selected_topic(selection: Selection, topic: str) -> bool:
    """Return whether a topic is selected."""
    return not selection.topics or topic in selection.topics


class GroupLag:
    """Measures the lag of the consumer groups of one store.

    Args:
        moment: Offsets of the groups.
        subscriptions: Subscriptions of the groups.
        selection: Groups and topics to measure.
        missing: A sentence on messages that may be missing; empty if none are.

    Attributes:
        counts: Counters to feed with messages.
    """

    def __init__(self, moment: OffsetState, subscriptions: Subscriptions, selection: Selection, missing: str) -> None:
        self._moment, self._missing = moment, missing
        subscribed: dict[GroupTopic, SubscribedAt | None] = {}  # there are many queues of each
        committed: dict[GroupTopic, set[int]] = {}
        self._plans: list[_LagPlan] = []
        offsets = sorted(each for each in moment.offsets.items() if each[0].kind == OffsetKind.GROUP)
        known = {GroupTopic(position.group, position.topic) for position, _ in offsets}
        for position, offset in offsets:
            key = GroupTopic(position.group, position.topic)
            if key not in subscribed:
                is_taken = is_selected_offset_owner(selection, position) and not _has_outdated_message_model(
                    key, known, subscriptions
                )
                subscribed[key] = find_owner_subscription(key, subscriptions) if is_taken else None
                committed[key] = set()
            if (found := subscribed[key]) is not None:
                self._plans.append(_LagPlan(position, offset, queue_of_offset_owner(moment, position), found))
                committed[key].add(position.queue_id)
        self._committed: Mapping[GroupTopic, set[int]] = committed
        self._consumers = find_consumers_by_topic(committed, subscriptions, partial(is_selected_group, selection))
        self._known: dict[str, set[int]] = defaultdict(set)
        for key, queue_ids in committed.items():
            self._known[key.topic] |= queue_ids
        self._plans += self._plans_without_offset()
        cursors = (cursor for plan in self._plans for cursor in plan.cursors())
        wanted = {topic: frozenset(one.wanted for one in groups.values()) for topic, groups in self._consumers.items()}
        self._counter = BacklogCounter(cursors, epoch_ms(moment.at), moment.log_start, wanted, finds_last=True)
        self.counts: Sequence[MessageCounter] = (self._counter,)
        self._lost: OffsetRangeCounter | None = None

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the groups consume."""
        return frozenset({plan.position.topic for plan in self._plans}.union(self._consumers))

    def _plans_without_offset(self) -> Iterator[_LagPlan]:
        """Yield a plan for each queue in which a group has no offset although it consumes the topic."""
        for topic, groups in self._consumers.items():
            for group in sorted(groups):
                for queue_id in sorted(self._known[topic] - self._committed.get(GroupTopic(group, topic), set())):
                    yield self._plan_without_offset(group, Queue(self._moment.broker, topic, queue_id))

    def _plan_without_offset(self, group: str, queue: Queue) -> _LagPlan:
        """Return the plan that measures the lag of a group in a queue in which it has no offset.

        Its bounds are open if those of all other queues are: after the last snapshot, and where the group got its first
        offset between two snapshots, or lost its last one.
        """
        position = OffsetOwner(OffsetKind.GROUP, group, queue.topic, queue.queue_id)
        others = self._committed.get(GroupTopic(group, queue.topic), ())
        positions = [position._replace(queue_id=queue_id) for queue_id in others]
        offsets = [self._moment.offsets[one] for one in positions]
        is_new = bool(positions) and not any(one in self._moment.compared for one in positions)
        is_after_last = self._moment.at != self._moment.taken and self._moment.taken_next is None
        is_open = all(one.high is None for one in offsets) if offsets else is_after_last
        offset = OffsetAt(0, None if is_open else 0)
        subscribed = self._consumers[queue.topic][group]
        return _LagPlan(position, offset, queue, subscribed, is_committed=False, is_new=is_new)

    def deleted_message_counter(self, spans: Mapping[Queue, QueueSpan]) -> OffsetRangeCounter | None:
        """Return a counter of messages that groups with a filter have lost by deletion; None if there are none.

        It must count the messages before `lag_rows` is called.

        Args:
            spans: Where the queues of `topics` begin and end.
        """
        places: dict[tuple[Queue, SubscriptionFilter], list[int]] = defaultdict(list)
        for plan in self._plans:
            start, end = plan.deleted_offset_range(spans.get(plan.queue))
            if start < end and plan.subscribed.wanted.is_known and not plan.subscribed.wanted.selects_all:
                for wanted in (plan.subscribed.wanted, ALL):
                    places[plan.queue, wanted] += [start, end]
        if not places:
            return None
        floors = {queue: span.floor for queue, span in spans.items() if span.floor is not None}
        self._lost = OffsetRangeCounter(places, floors, self._moment.log_start)
        return self._lost

    def lag_rows(self, spans: Mapping[Queue, QueueSpan]) -> Iterator[LagRow]:
        """Yield a row of lag for each group and queue.

        Args:
            spans: Where the queues of `topics` begin and end.
        """
        behind = self._counter.backlog_by_cursor
        others = (
            self._plan_without_offset(group, queue)
            for queue in sorted(spans)
            if queue.queue_id not in self._known.get(queue.topic, ()) and queue in self._counter.starts
            for group in sorted(self._consumers.get(queue.topic, ()))
        )
        for plan in chain(self._plans, others):
            span = spans.get(plan.queue)
            if plan.is_committed or (span is not None and (span.first or 0) < span.end):
                yield plan.lag_row(
                    self._moment, span, behind, plan.count_lost_messages(span, self._lost), self._missing
                )


def _has_outdated_message_model(
    group_topic: GroupTopic, topics_with_offsets: Collection[GroupTopic], subscriptions: Subscriptions
) -> bool:
    """Return whether a group's offsets are from a message model (clustering, broadcasting) that it no longer uses.

    Args:
        group_topic: The topic, and the group as in the key of its offsets.
        topics_with_offsets: All groups and topics with offsets, likewise.
    """
    group = strip_broadcast_suffix(group_topic.group)
    broadcasts = group != group_topic.group
    model = subscriptions.find_subscription(group_topic._replace(group=group)).message_model
    other = group_topic._replace(group=group if broadcasts else group + BROADCAST_SUFFIX)
    return model is not None and (model == BROADCASTING) != broadcasts and other in topics_with_offsets


def queue_of_offset_owner(moment: OffsetState, owner: OffsetOwner) -> Queue:
    """Return the queue that a group's offset is for."""
    return Queue(moment.broker, owner.topic, owner.queue_id)


def missing_messages_note(moment: OffsetState, archived_until: int | None) -> str:
    """Return a note if the lake may lack messages stored by the measured time; otherwise an empty string.

    Args:
        moment: Offsets and log ends at the time.
        archived_until: Physical offset up to which the log is archived; None if all of it is here.
    """
    if archived_until is None:
        return ""
    if moment.at != moment.taken and moment.taken_next is None:
        return f"the last snapshot is of {moment.taken:%Y-%m-%dT%H:%M:%SZ}; later changes are not known"
    log_end = moment.log_end if moment.at == moment.taken else moment.log_end_next
    if log_end is None:
        return "it is not known whether the archive has every message of this time"
    if log_end > archived_until:
        return (
            f"the archive ends {format_count(log_end - archived_until, 'byte')} of log before the snapshot: run "
            "'commitlake archive' to count what is in them"
        )
    return ""


class _LagPlan(NamedTuple):
    """Group, queue, offset and subscription for which one row of lag is computed.

    Attributes:
        position: Group and queue.
        offset: Offset of the group.
        queue: The queue.
        subscribed: Subscription of the group.
        is_committed: False if the group has no offset in the queue.
        is_new: True if it has offsets only in other queues, and had none of them at the compared time.
    """

    position: OffsetOwner
    offset: OffsetAt
    queue: Queue
    subscribed: SubscribedAt
    is_committed: bool = True
    is_new: bool = False

    def _cursor_at(self, offset: int) -> LagCursor:
        return LagCursor(self.queue, offset, self.subscribed.wanted)

    def cursors(self) -> Iterator[LagCursor]:
        """Yield the positions from which messages are counted: the lowest and the highest possible offset."""
        yield self._cursor_at(self.offset.low)
        if self.offset.high is not None and not self.offset.is_exact:
            yield self._cursor_at(self.offset.high)

    @property
    def reached_offset(self) -> int:
        """Offset that the group had in the last snapshot, or the lowest possible one if that is not known."""
        return self.offset.low if self.offset.reached is None else self.offset.reached

    def deleted_offset_range(self, span: QueueSpan | None) -> tuple[int, int]:
        """Return the range of offsets (first, end) that the broker deleted before the group consumed them."""
        first = max(0, self.reached_offset)  # -1: nothing is consumed
        is_lost = self.is_committed and span is not None and span.first is not None and self.reached_offset <= span.end
        return (first, max(first, span.first)) if is_lost and span is not None and span.first else (first, first)

    def count_lost_messages(self, span: QueueSpan | None, counter: OffsetRangeCounter | None) -> FigureBounds:
        """Return how many messages the broker deleted before the group consumed them.

        Args:
            span: Where the queue begins and ends.
            counter: Has the deleted messages if they can be read, and a group has a filter.
        """
        start, end = self.deleted_offset_range(span)
        wanted = self.subscribed.wanted
        if wanted.selects_all or start == end:
            return FigureBounds(end - start if wanted.is_known else 0, end - start)
        if counter is None:
            return FigureBounds(0, end - start)
        counted = counter.count_between(self.queue, wanted, start, end)
        # Messages that cannot be read any more may have been wanted, too.
        return FigureBounds(counted, counted + end - start - counter.count_between(self.queue, ALL, start, end))

    def lag_row(
        self,
        moment: OffsetState,
        span: QueueSpan | None,
        backlogs: Mapping[LagCursor, Backlog],
        lost_messages: FigureBounds,
        missing_note: str,
    ) -> LagRow:
        """Return the row of lag for this group and queue."""
        most = backlogs[self._cursor_at(self.offset.low)]
        least = most
        if not self.subscribed.wanted.is_known:
            # The group may want none of these messages.
            least = Backlog()
        elif not self.offset.is_exact:
            least = Backlog() if self.offset.high is None else backlogs[self._cursor_at(self.offset.high)]
        next_time = _to_datetime(most.next_time_ms)
        subscribed, offset = self.subscribed, self.offset
        compared = moment.compared.get(self.position) if moment.compared_at else None
        if not self.is_committed:
            first = 0 if span is None or span.first is None else span.first
            offset = OffsetAt(first, None if offset.high is None else first)
            # A group that got its first offset since then was not stalled at the first message.
            compared = first if moment.compared_at and compared is None and not self.is_new else None
        movement = Movement(
            offset=self.reached_offset if self.is_committed else offset.low,
            compared=compared,
            moves=moment.moves.get(self.position, ()),
            seconds=0.0 if moment.compared_at is None else (moment.taken - moment.compared_at).total_seconds(),
            has_members=None if subscribed.members is None else subscribed.members > 0,
        )
        judged = lag_verdict(
            span, movement, most.messages, next_time, moment.at, lost_messages, is_complete=not missing_note
        )
        is_bound = not subscribed.wanted.is_known and most.messages > 0
        of_filter = subscribed.note or (UNKNOWN_FILTER if is_bound else "")
        notes = [judged.reason, "" if self.is_committed else NO_OFFSET, of_filter, missing_note]
        if offset.reached is not None:
            notes.append("the group's offset was set back between these two snapshots, so it may have been anywhere")
        if span is not None and span.floor is not None:
            notes.append(
                f"queue offsets begin again at physical offset {span.floor}; messages that were stored before do not "
                "count: the topic was deleted and created again"
            )
        broadcasts = subscribed.message_model == BROADCASTING
        group = strip_broadcast_suffix(self.position.group)
        if broadcasts:
            of_slowest = "; the broker has the one at which the slowest last pulled"
            notes.append(f"{BROADCASTS}{'' if group == self.position.group else of_slowest}")
        is_all = not missing_note
        return LagRow(
            broker=self.queue.broker,
            kind="retry" if self.position.topic.startswith(RETRY_PREFIX) else "group",
            group=group,
            topic=self.position.topic,
            queue_id=self.position.queue_id,
            as_of=moment.at,
            offset=offset,
            end=None if span is None else span.end,
            messages=FigureBounds(least.messages, most.messages if is_all else None),
            bytes=FigureBounds(least.bytes, most.bytes if is_all else None),
            seconds=FigureBounds(
                _next_message_wait_seconds(least, moment),
                _next_message_wait_seconds(most, moment) if is_all or most.messages else None,
            ),
            next_time=next_time,
            judged=judged,
            last_consumed_time=_to_datetime(most.last_time_ms),
            filter=_subscription_text(subscribed.wanted),
            filter_as_of=subscribed.as_of,
            members=subscribed.members,
            broadcasts=broadcasts,
            lost=lost_messages,
            log_start=moment.log_start,
            compared_at=moment.compared_at,
            notes=tuple(note for note in notes if note),
        )


def _to_datetime(ms: int | None) -> datetime.datetime | None:
    return None if ms is None else from_ms(ms)


def _next_message_wait_seconds(backlog: Backlog, moment: OffsetState) -> float:
    if backlog.next_time_ms is None:
        return 0.0
    return max(0.0, (epoch_ms(moment.at) - backlog.next_time_ms) / 1000)


def _subscription_text(message_filter: SubscriptionFilter) -> str | None:
    if not message_filter.is_known:
        return None
    return (
        message_filter.expression
        if message_filter.tags is not None or message_filter.selects_all
        else f"sql: {message_filter.expression}"
    )
