"""Offsets that a group needs to consume all messages since a time: for each queue, its first such message.

RocketMQ's own reset by time searches a file of a queue, and brokers 4.9 return the message nearest to the time. These
offsets are computed from the messages.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator

from commitlake.pipelines.lag.counting import Queue
from commitlake.pipelines.lag.queues import QueueSpan
from commitlake.pipelines.offsets.group_offsets import GroupOffset
from commitlake.pipelines.offsets.lake_queues import FirstMessage
from commitlake.pipelines.offsets.sources import OffsetSource


def offsets_needed(source: OffsetSource, topics: Collection[str], since: datetime.datetime) -> Iterator[GroupOffset]:
    """Yield the needed offset of each queue of the given topics.

    Args:
        source: The store.
        since: The time.

    Raises:
        QueryError: A table cannot be read.
        CommitLogError: A log cannot be read.
    """
    spans = source.queues.spans(topics)
    floors = {queue: span.floor for queue, span in spans.items() if span.floor is not None}
    found = source.queues.first_since(topics, since, floors)
    is_complete = source.queues.reaches(since)
    for queue, span in sorted(spans.items()):
        if queue in found:
            yield _from_first(queue, found[queue], span)
        elif is_complete:
            yield GroupOffset(queue, span.end, span.end, ("no message was stored since then",))
        else:
            note = "the archive ends before that time; --namesrv queries the broker for later messages"
            yield GroupOffset(queue, span.end, None, (note,))


def _from_first(queue: Queue, first: FirstMessage, span: QueueSpan) -> GroupOffset:
    """Return the offset of the first message; it has a lower bound if missing messages may be as new."""
    low, notes = first.offset, []
    if first.before is None:
        low = 0 if span.floor is None else first.offset
    elif first.before < first.offset:
        low = first.before + 1
    else:
        notes.append(f"the broker's clock went back: messages up to offset {first.before} have earlier times")
    if low < first.offset:
        missing = f"offset {low} is" if low + 1 == first.offset else f"offsets {low} to {first.offset - 1} are"
        notes.append(f"{missing} not in the archive and may be as new")
    return GroupOffset(queue, low, first.offset, tuple(notes))
