"""Lag of a group after its offsets are set: the messages that it wants from these offsets on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from commitlake.pipelines.lag.counting import BacklogCounter, Behind, Cursor, Queue
from commitlake.pipelines.lag.queues import QueueSpan
from commitlake.pipelines.lag.verdicts import FigureBounds
from commitlake.pipelines.offsets.group_offsets import GroupOffset, LiveQueue, ResultingLag
from commitlake.pipelines.offsets.sources import OffsetSource
from commitlake.schemas.times import from_ms


def resulting_lags(
    source: OffsetSource, group: str, offsets: Sequence[GroupOffset], live: Mapping[Queue, LiveQueue]
) -> dict[Queue, ResultingLag]:
    """Return the remaining messages from the lower bound of each offset.

    Messages that only the broker has are counted by offsets, because their tags and properties are not known here.

    Args:
        source: The store of these offsets.
        group: The consumer group.
        offsets: Offsets in queues of the store.
        live: Queues at a broker that was queried.

    Raises:
        QueryError: A table cannot be read.
        CommitLogError: A log cannot be read.
    """
    cursors = {
        offset.queue: Cursor(offset.queue, offset.low, source.wanted(group, offset.queue.topic)) for offset in offsets
    }
    counter = BacklogCounter(cursors.values())
    spans = source.queues.count({queue.topic for queue in cursors}, [counter])
    counted = counter.behind
    return {
        queue: _lag(cursor, counted[cursor], spans.get(queue), live.get(queue)) for queue, cursor in cursors.items()
    }


def _lag(cursor: Cursor, behind: Behind, span: QueueSpan | None, live: LiveQueue | None) -> ResultingLag:
    known_end = 0 if span is None else span.end
    low, high = behind.messages, float(behind.messages)
    if live is not None:
        newer = max(0, live.end - max(known_end, cursor.offset))
        high += newer
        low += newer if cursor.wanted.takes_all else 0
    if not cursor.wanted.is_known:
        low = 0
    next_time = None if behind.next_time_ms is None else from_ms(behind.next_time_ms)
    return ResultingLag(FigureBounds(low, high), behind.bytes, behind.next_offset, next_time)
