"""Offsets that a group had at a time, from the snapshots of `consumer_offsets`.

At the time of a snapshot they are exact. Between two snapshots, and after the last one, they have bounds. Messages
narrow the bounds, because a group cannot have consumed messages that were not stored yet. A queue of the same topic in
which the group had no offset is returned with a problem: there is nothing to set.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS
from commitlake.connectors.lake.sql import text_literal
from commitlake.pipelines.lag.backlog_counting import Queue
from commitlake.pipelines.lag.offsets import OffsetAt, OffsetState, offsets_at
from commitlake.pipelines.lag.queue_offset_spans import QueueSpan
from commitlake.pipelines.offsets.group_offsets import GroupOffset
from commitlake.pipelines.offsets.offset_sources import OffsetSource
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner

_NO_OFFSET = "the group had no committed offset in this queue at that time, although it has messages"


@dataclass(frozen=True, slots=True)
class PastOffsets:
    """Offsets that a consumer group had at a given time.

    Attributes:
        offsets: Offsets by queue.
        missing: Sentences on stores without data at the time.
        groups: All groups that had an offset at the time.
    """

    offsets: Sequence[GroupOffset]
    missing: Sequence[str]
    groups: Collection[str]


def read_past_offsets(
    table: DeltaTable,
    sources: Sequence[OffsetSource],
    group: str,
    as_of: datetime.datetime,
    topics: Collection[str] = (),
) -> PastOffsets:
    """Return the offsets that a group had in all queues at a given time, from the snapshots in the lake.

    Args:
        sources: The stores.
        group: The consumer group.
        as_of: The time.
        topics: Topics to return; all if empty.
    """
    found: list[GroupOffset] = []
    missing: list[str] = []
    groups: set[str] = set()
    for source in sources:
        moment = offsets_at(table, source.broker, as_of).get(OffsetKind.GROUP)
        if moment is None:
            missing.append(_no_snapshot_text(table, source.broker, as_of))
            continue
        groups |= {position.group for position in moment.offsets}
        found += _offsets_of_store(source, moment, group, topics)
    return PastOffsets(found, missing, groups)


def _no_snapshot_text(table: DeltaTable, broker: str, as_of: datetime.datetime) -> str:
    where = f"broker = {text_literal(broker)} AND kind = '{OffsetKind.GROUP}' AND topic IS NULL"
    sql = f"SELECT min(as_of) AS first FROM {OFFSETS} WHERE {where}"
    (row,) = rows_to_dicts(run_sql(table, OFFSETS, sql).read_all())
    if row["first"] is None:
        return (
            f"{broker}: the lake has no snapshot of its groups, so their offsets at {_time_text(as_of)} are not known"
        )
    return (
        f"{broker}: the first snapshot of its groups is from {_time_text(row['first'])}, so their offsets at "
        f"{_time_text(as_of)} "
        "are not known"
    )


def _offsets_of_store(
    source: OffsetSource, moment: OffsetState, group: str, topics: Collection[str]
) -> Iterator[GroupOffset]:
    chosen = {
        position: offset
        for position, offset in sorted(moment.offsets.items())
        if position.group == group and (not topics or position.topic in topics)
    }
    names = {position.topic for position in chosen}
    spans, spans_now = source.queues.queue_spans(names, moment.at), source.queues.queue_spans(names)
    is_archived = source.queues.covers_time(moment.at)
    for position, offset in chosen.items():
        queue = Queue(source.broker, position.topic, position.queue_id)
        span, now = spans.get(queue), spans_now.get(queue)
        yield _to_group_offset(queue, offset, moment, span if is_archived else None, _created_again_text(span, now))
    for queue in sorted(spans):
        if OffsetOwner(OffsetKind.GROUP, group, queue.topic, queue.queue_id) not in chosen:
            yield GroupOffset(queue, spans[queue].first or 0, None, (), _NO_OFFSET)


def _created_again_text(past_span: QueueSpan | None, current_span: QueueSpan | None) -> str:
    """Return a sentence if a topic was deleted and created again between two times; else an empty string."""
    if (
        current_span is None
        or current_span.floor is None
        or (past_span is not None and past_span.floor == current_span.floor)
    ):
        return ""
    return (
        "the topic was deleted and created again after that time (its offsets restart at physical offset "
        f"{current_span.floor})"
    )


def _to_group_offset(
    queue: Queue, offset: OffsetAt, moment: OffsetState, span: QueueSpan | None, problem: str
) -> GroupOffset:
    """Return a group's past offset in one queue, with notes on what is not known exactly.

    Args:
        offset: Offset from the snapshots.
        moment: The time, and its snapshots.
        span: First and end offset of the queue at the time; None if not known.
        problem: Reason why the offset is invalid now.
    """
    low, high = offset.low, offset.high
    if moment.taken_next is None:
        note = f"after the last snapshot, of {_time_text(moment.taken)}, which has {low}"
    else:
        note = f"between the snapshots of {_time_text(moment.taken)} and {_time_text(moment.taken_next)}"
    if moment.taken_next is not None and high is None:
        what = "was set back" if offset.reached is not None else "got its first offset, or lost its last one,"
        return GroupOffset(queue, low, high, (), problem or f"the group {what} {note}: its offset is not known")
    if span is not None:
        high = max(low, span.end if high is None else min(high, span.end))
    is_exact = low == high
    return GroupOffset(queue, low, high, () if is_exact and moment.at == moment.taken else (note,), problem)


def _time_text(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
