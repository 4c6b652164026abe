"""Combines all data on each offset: its bounds, the queue at the broker, and the resulting lag.

A group that is to consume all messages since a time needs, for each queue, the offset of its first such message.
RocketMQ's own reset by time searches a file of a queue, and brokers 4.9 return the message nearest to the time. These
offsets are computed from the messages.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from commitlake.pipelines.lag.backlog_counting import Backlog, BacklogCounter, LagCursor, Queue
from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.lag.verdicts import FigureBounds
from commitlake.pipelines.offsets.group_offsets import GroupOffset, LiveQueue, PlannedOffset, ResultingLag
from commitlake.pipelines.offsets.live_queues import LiveQueues
from commitlake.pipelines.offsets.offset_sources import FirstMessageSince, OffsetSource
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner
from commitlake.schemas.times import from_ms


def plan_past_offsets(
    sources: Sequence[OffsetSource], group: str, offsets: Iterable[GroupOffset], live_queues: LiveQueues | None
) -> list[PlannedOffset]:
    """Return the offsets that a group had, limited to the queues' present ranges, with the lag that would result.

    Args:
        sources: The stores.
        group: The consumer group.
        offsets: From `read_past_offsets`.
        live_queues: The brokers; None if they are not queried.
    """
    return _plan_offsets(sources, group, _limit_to_live_queues(offsets, live_queues, None), live_queues)


def plan_offsets_since(
    sources: Sequence[OffsetSource],
    group: str,
    topics: Collection[str],
    since: datetime.datetime,
    live_queues: LiveQueues | None,
) -> list[PlannedOffset]:
    """Return the offsets from which a group gets all messages since a time, with the lag that would result.

    Args:
        sources: The stores.
        group: The consumer group.
        since: The time.
        live_queues: The brokers, which are queried for data that the sources lack; None if they are not queried.
    """
    asked = [offset for source in sources for offset in find_offsets_since(source, topics, since)]
    checked = _limit_to_live_queues(asked, live_queues, since)
    if live_queues is not None:
        known = {offset.queue for offset in asked}
        brokers = [source.broker for source in sources]
        checked += list(live_queues.offsets_of_queues_without_source(brokers, topics, known, since))
    return _plan_offsets(sources, group, checked, live_queues)


_Checked = list[tuple[GroupOffset, LiveQueue | None]]


def _limit_to_live_queues(
    offsets: Iterable[GroupOffset], live_queues: LiveQueues | None, since: datetime.datetime | None
) -> _Checked:
    return (
        [(offset, None) for offset in offsets]
        if live_queues is None
        else list(live_queues.limit_offsets_to_queues(offsets, since))
    )


def _plan_offsets(
    sources: Sequence[OffsetSource], group: str, limited_offsets: _Checked, live_queues: LiveQueues | None
) -> list[PlannedOffset]:
    lags: dict[Queue, ResultingLag] = {}
    current: dict[Queue, int] = {}
    for source in sources:
        here = [(offset, at_broker) for offset, at_broker in limited_offsets if offset.queue.broker == source.broker]
        known = {offset.queue: at_broker for offset, at_broker in here if at_broker is not None}
        lags |= compute_resulting_lags(source, group, [offset for offset, _ in here if not offset.problem], known)
        for offset, _ in here:
            position = OffsetOwner(OffsetKind.GROUP, group, offset.queue.topic, offset.queue.queue_id)
            if position in source.newest:
                current[offset.queue] = source.newest[position]
    planned = [
        PlannedOffset(
            offset,
            at_broker,
            current.get(offset.queue) if at_broker is None else at_broker.current,
            lags.get(offset.queue),
        )
        for offset, at_broker in sorted(limited_offsets, key=lambda pair: pair[0].queue)
    ]
    return planned if live_queues is None else live_queues.compare_next_messages(planned)


def compute_resulting_lags(
    source: OffsetSource, group: str, offsets: Sequence[GroupOffset], live_queue_states: Mapping[Queue, LiveQueue]
) -> dict[Queue, ResultingLag]:
    """Return, by queue, how many messages a group still has to consume if it starts at the given offsets.

    Messages that only the broker has are counted by offsets, because their tags and properties are not known here.

    Args:
        source: The store of these offsets.
        group: The consumer group.
        offsets: Offsets in queues of the store.
        live_queue_states: Queues at a broker that was queried.
    """
    cursors = {
        offset.queue: LagCursor(offset.queue, offset.low, source.subscription_filter(group, offset.queue.topic))
        for offset in offsets
    }
    counter = BacklogCounter(cursors.values())
    spans = source.queues.feed_backlog_counters({queue.topic for queue in cursors}, [counter])
    counted = counter.backlog_by_cursor
    return {
        queue: _to_resulting_lag(cursor, counted[cursor], spans.get(queue), live_queue_states.get(queue))
        for queue, cursor in cursors.items()
    }


def _to_resulting_lag(
    cursor: LagCursor, backlog: Backlog, span: QueueSpan | None, live_queue: LiveQueue | None
) -> ResultingLag:
    known_end = 0 if span is None else span.end
    low, high = backlog.messages, float(backlog.messages)
    if live_queue is not None:
        newer = max(0, live_queue.end - max(known_end, cursor.offset))
        high += newer
        low += newer if cursor.wanted.selects_all else 0
    if not cursor.wanted.is_known:
        low = 0
    next_time = None if backlog.next_time_ms is None else from_ms(backlog.next_time_ms)
    return ResultingLag(FigureBounds(low, high), backlog.bytes, backlog.next_offset, next_time)


def find_offsets_since(
    source: OffsetSource, topics: Collection[str], since: datetime.datetime
) -> Iterator[GroupOffset]:
    """Yield, for each queue of the topics, the offset from which a group must consume to get messages since a time.

    Args:
        source: The store.
        since: The time.
    """
    spans = source.queues.queue_spans(topics)
    floors = {queue: span.floor for queue, span in spans.items() if span.floor is not None}
    found = source.queues.first_messages_since(topics, since, floors)
    is_complete = source.queues.covers_time(since)
    for queue, span in sorted(spans.items()):
        if queue in found:
            yield _offset_of_first_message(queue, found[queue], span)
        elif is_complete:
            yield GroupOffset(queue, span.end, span.end, ("no message was stored since then",))
        else:
            note = "the archive ends before that time; --namesrv queries the broker for later messages"
            yield GroupOffset(queue, span.end, None, (note,))


def _offset_of_first_message(queue: Queue, first_message: FirstMessageSince, span: QueueSpan) -> GroupOffset:
    """Return the offset of a queue's first message since a time, or its bounds if earlier messages are missing."""
    low, notes = first_message.offset, []
    if first_message.before is None:
        low = 0 if span.floor is None else first_message.offset
    elif first_message.before < first_message.offset:
        low = first_message.before + 1
    else:
        notes.append(f"the broker's clock went back: messages up to offset {first_message.before} have earlier times")
    if low < first_message.offset:
        missing = (
            f"offset {low} is"
            if low + 1 == first_message.offset
            else f"offsets {low} to {first_message.offset - 1} are"
        )
        notes.append(f"{missing} not in the archive and may be as new")
    return GroupOffset(queue, low, first_message.offset, tuple(notes))
