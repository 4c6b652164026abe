"""Messages that a broker holds back: delay levels, timers, and half messages of transactions.

What still waits for its time is not behind. What counts as behind is overdue: it should have been delivered by then.
Half messages are different: they are in flight until their producer commits them, and the broker's offset tells only
which ones are finished for certain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrays import Array
from commitlake.pipelines.lag.counting import COLUMNS, BacklogCounter, Behind, Cursor, Queue, milliseconds
from commitlake.pipelines.lag.measure import Bounds, Lag, Messages
from commitlake.pipelines.lag.offsets import Moment, OffsetAt
from commitlake.pipelines.lag.verdicts import Judged, Verdict
from commitlake.pipelines.snapshot.progress import OffsetKind, Position
from commitlake.schemas.layouts.rocketmq.delay_levels import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.properties import TIMER_OUT
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from commitlake.schemas.times import EPOCH, MILLISECOND, epoch_ms

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
_TIMER_DELETED = "TIMER_DEL_UNIQKEY"
_OVERDUE = "the broker delivers later than it should"


def measure_waiting(
    moments: Mapping[OffsetKind, Moment], messages: Messages, delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS
) -> Iterator[Lag]:
    """Yield a row for each delay level with a message that waits, one for the timers, and one for each half queue.

    Args:
        moments: What is known of the store's offsets.
        messages: The store's messages.
        delay_levels_ms: Delays of levels 1, 2, 3, …

    Raises:
        QueryError: A table cannot be read.
    """
    if OffsetKind.DELAY in moments:
        yield from _delay_levels(moments[OffsetKind.DELAY], messages, delay_levels_ms)
    if OffsetKind.TIMER_TIME in moments:
        yield from _timers(moments[OffsetKind.TIMER_TIME], messages)
    if OffsetKind.GROUP in moments:
        yield from _halves(moments[OffsetKind.GROUP], messages)


def _delay_levels(moment: Moment, messages: Messages, delays: Sequence[int]) -> Iterator[Lag]:
    found = {
        position: offset for position, offset in sorted(moment.offsets.items()) if 0 <= position.queue_id < len(delays)
    }
    cursors = {position: Cursor(_queue(moment, position), offset.low) for position, offset in found.items()}
    now = epoch_ms(moment.at)
    waiting = BacklogCounter(cursors.values(), now)
    overdue = {
        position: BacklogCounter([cursor], now - delays[position.queue_id]) for position, cursor in cursors.items()
    }
    starts = {cursor.queue: cursor.offset for cursor in cursors.values()}
    for batch in messages.batches(starts, COLUMNS, moment.at) if starts else ():
        waiting.add(moment.broker, batch)
        for counter in overdue.values():
            counter.add(moment.broker, batch)
    for position, cursor in cursors.items():
        behind = waiting.behind[cursor]
        if behind.messages:
            delay_ms = delays[position.queue_id]
            late = overdue[position].behind[cursor]
            note = f"level {position.queue_id + 1}, {delay_ms // 1000} s; {behind.messages - late.messages} more wait"
            due_ms = None if late.next_time_ms is None else late.next_time_ms + delay_ms
            yield _row(moment, "delay", position, found[position], late, due_ms, note)


def _timers(moment: Moment, messages: Messages) -> Iterator[Lag]:
    for position, delivered in sorted(moment.offsets.items()):
        queue = _queue(moment, position)
        now = epoch_ms(moment.at)
        keys: list[pa.Array] = []
        dues: list[Array] = []
        deleted: list[pa.Array] = []
        for batch in messages.batches({queue: 0}, [*COLUMNS, "unique_key", "properties"], moment.at):
            here = pc.and_(
                pc.equal(batch.column("topic").cast(pa.string()), position.topic),
                pa.array(milliseconds(batch) <= now),
            )
            timers = batch.filter(here)
            removed = _property(timers, _TIMER_DELETED)
            deleted.append(removed.drop_null())
            due = pc.cast(_property(timers, TIMER_OUT), pa.int64(), safe=False).fill_null(0)
            pending = pc.and_(pc.greater_equal(due, delivered.low), removed.is_null())
            keys.append(timers.column("unique_key").cast(pa.string()).filter(pending))
            dues.append(np.asarray(due.filter(pending).to_numpy(zero_copy_only=False)))
        if not keys:
            continue
        # A timer that is far away is stored again on its way, with the same key.
        names, due = pa.concat_arrays(keys), np.concatenate(dues)
        kept = ~np.asarray(pc.is_in(names, value_set=pa.concat_arrays(deleted)).to_numpy(zero_copy_only=False), bool)
        _, first = np.unique(names.fill_null("").to_numpy(zero_copy_only=False).astype(str)[kept], return_index=True)
        due = due[kept][first]
        late = due[due <= now]
        if len(due):
            behind = Behind(messages=len(late))
            note = f"{len(due) - len(late)} more wait for their time"
            yield _row(moment, "timer", position, delivered, behind, int(late.min()) if len(late) else None, note)


def _halves(moment: Moment, messages: Messages) -> Iterator[Lag]:
    offsets = {
        position: offset
        for position, offset in sorted(moment.offsets.items())
        if position.group == TRANSACTION_GROUP and position.topic == HALF_TOPIC
    }
    cursors = {position: Cursor(_queue(moment, position), offset.low) for position, offset in offsets.items()}
    counter = BacklogCounter(cursors.values(), epoch_ms(moment.at))
    starts = {cursor.queue: cursor.offset for cursor in cursors.values()}
    for batch in messages.batches(starts, COLUMNS, moment.at) if starts else ():
        counter.add(moment.broker, batch)
    for position, cursor in cursors.items():
        behind = counter.behind[cursor]
        if behind.messages:
            note = "half messages that the broker has not passed yet; some of them may be finished"
            row = _row(moment, "half", position, offsets[position], behind, behind.next_time_ms, note)
            yield row


def _property(batch: pa.RecordBatch, name: str) -> pa.Array:
    properties = batch.column("properties")
    return pc.map_lookup(properties, pa.scalar(name, properties.type.key_type), "last").cast(pa.string())


def _queue(moment: Moment, position: Position) -> Queue:
    return Queue(moment.broker, position.topic, position.queue_id)


def _row(
    moment: Moment, kind: str, position: Position, offset: OffsetAt, behind: Behind, due_ms: int | None, note: str
) -> Lag:
    is_half = kind == "half"
    late = 0.0 if due_ms is None else max(0.0, (epoch_ms(moment.at) - due_ms) / 1000)
    verdict = Verdict.SLOW if behind.messages and not is_half else Verdict.OK
    low = 0 if is_half or not offset.is_exact else behind.messages
    return Lag(
        broker=moment.broker,
        kind=kind,
        group=position.group,
        topic=position.topic,
        queue_id=position.queue_id,
        as_of=moment.at,
        offset=offset,
        end=None,
        messages=Bounds(low, behind.messages),
        bytes=Bounds(0 if low == 0 else behind.bytes, behind.bytes),
        seconds=Bounds(0.0 if low == 0 else late, late),
        next_time=None if due_ms is None else EPOCH + due_ms * MILLISECOND,
        judged=Judged(verdict, _OVERDUE if verdict is Verdict.SLOW else ""),
        notes=tuple(part for part in (_OVERDUE if verdict is Verdict.SLOW else "", note) if part),
    )
