"""Messages that a broker holds back until a later time: delay levels, timers, and JMQ's retry stores.

A message whose time has not come is not behind. Only overdue messages count as behind. Retry stores also have dead
letters; a lake has the state of the last archive run.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.stores import Store
from commitlake.pipelines.lag.backlog_counting import (
    COLUMNS,
    Backlog,
    BacklogCounter,
    LagCursor,
    Queue,
    integer_column,
    milliseconds_column,
)
from commitlake.pipelines.lag.group_lag import LagRow, is_selected_offset_owner, queue_of_offset_owner
from commitlake.pipelines.lag.offsets import OffsetAt, OffsetState
from commitlake.pipelines.lag.queue_offset_spans import MessageCounter, QueueSpan
from commitlake.pipelines.lag.verdicts import FigureBounds, LagJudgement, LagVerdict
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.properties import REAL_TOPIC, TIMER_OUT
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.edges import AbsentReason, EdgeKind
from commitlake.schemas.times import epoch_ms, format_time, from_ms

_TIMER_DELETED = "TIMER_DEL_UNIQKEY"
_OVERDUE = "the broker delivers later than it should"
TIMER_WHEEL_MS = 8 * 86_400_000
"""Largest age of a timer that is not delivered.

The wheel turns in seven days; a message that waits longer is stored again meanwhile. Source:
TimerMessageStore.TIMER_WHEEL_TTL_DAY (RocketMQ 5.5.0).
"""
KIND = "retry_store"


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """Delays of a broker's delay levels, as set in messageDelayLevel.

    Attributes:
        delays_ms: Delays of levels 1, 2, 3, …
        known: Levels whose delay comes from a settings file or the store. The delays of other levels are RocketMQ's
            defaults.
    """

    delays_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS
    known: Collection[int] = ()

    def delay_ms(self, level: int) -> int:
        """Return the delay of a level, in milliseconds; levels beyond the last have the delay of the last one."""
        return self.delays_ms[min(level, len(self.delays_ms)) - 1]

    def assumed_delay_note(self, level: int) -> str:
        """Return a remark if the delay of a level is not known but assumed; empty if it is known."""
        if level > len(self.delays_ms):
            return f" (assumed, as of level {len(self.delays_ms)}, the last one that is known)"
        return "" if level in self.known else " (assumed: RocketMQ's default; --broker-conf gives the broker's own)"


class DelayLag:
    """Counts the overdue messages of each delay level.

    Args:
        moment: The broker's offsets in its schedule queues.
        levels: The delays.
        missing: A sentence on messages that may be missing; empty if none are.

    Attributes:
        counts: Counters to feed with messages.
    """

    def __init__(self, moment: OffsetState, levels: DelayLevels, missing: str) -> None:
        self._moment, self._levels, self._missing = moment, levels, missing
        topic = next((position.topic for position in moment.offsets), SCHEDULE_TOPIC)
        every_level = (OffsetOwner(OffsetKind.DELAY, "", topic, number) for number in range(len(levels.delays_ms)))
        # A level that has not delivered a message yet may have no offset.
        self._offsets = dict.fromkeys(every_level, OffsetAt(0, 0)) | dict(sorted(moment.offsets.items()))
        cursors = (
            cursor
            for position, offset in self._offsets.items()
            for place in (offset.low, offset.high)
            if place is not None
            for cursor in (self._waiting_cursor(position, place), self._overdue_cursor(position, place))
        )
        self._counter = BacklogCounter(cursors, epoch_ms(moment.at), moment.log_start)
        self.counts: Sequence[MessageCounter] = (self._counter,)

    def _waiting_cursor(self, owner: OffsetOwner, offset: int) -> LagCursor:
        return LagCursor(queue_of_offset_owner(self._moment, owner), offset)

    def _overdue_cursor(self, owner: OffsetOwner, offset: int) -> LagCursor:
        until_ms = epoch_ms(self._moment.at) - self._levels.delay_ms(owner.queue_id + 1)
        return LagCursor(queue_of_offset_owner(self._moment, owner), offset, until_ms=until_ms)

    def lag_rows(self, _spans: Mapping[Queue, QueueSpan]) -> Iterator[LagRow]:
        """Yield a row of lag for each delay level with waiting messages."""
        counted = self._counter.backlog_by_cursor
        for position, offset in self._offsets.items():
            waiting = counted[self._waiting_cursor(position, offset.low)].messages
            if not waiting:
                continue
            late = counted[self._overdue_cursor(position, offset.low)]
            least = Backlog() if offset.high is None else counted[self._overdue_cursor(position, offset.high)]
            level = position.queue_id + 1
            delay_ms, assumption = self._levels.delay_ms(level), self._levels.assumed_delay_note(level)
            note = f"level {level}, {delay_ms // 1000} s{assumption}; {waiting - late.messages} more wait"
            yield held_back_lag_row(
                self._moment,
                "delay",
                position,
                offset,
                (least, late),
                tuple(None if one.next_time_ms is None else one.next_time_ms + delay_ms for one in (least, late)),
                (note, self._missing),
                is_complete=not self._missing,
            )


class TimerLag:
    """Counts the timer messages that should have been delivered already.

    Args:
        broker: The store's name.
        delivered: Time up to which the broker has delivered; None if not known.
        entered: Messages of the timer topic that the broker has put on its wheel; None if not known.
        at: Time of the measurement if `delivered` is None.
        missing: A sentence on messages that may be missing; empty if none are.

    Attributes:
        counts: Counters to feed with messages.
    """

    def __init__(
        self,
        broker: str,
        delivered: OffsetState | None,
        entered: OffsetState | None,
        at: datetime.datetime,
        missing: str,
    ) -> None:
        self._moment = delivered or OffsetState(broker=broker, at=at, taken=at)
        self._missing = missing
        self._position = OffsetOwner(OffsetKind.TIMER_TIME, "", TIMER_TOPIC, 0)
        self._delivered = None if delivered is None else delivered.offsets.get(self._position)
        now_ms = epoch_ms(self._moment.at)
        self._low_ms = now_ms if self._delivered is None else self._delivered.low
        on_wheel = min((offset.low for offset in entered.offsets.values()), default=None) if entered else None
        since_ms = min(self._low_ms, now_ms) - TIMER_WHEEL_MS
        self._timers = _PendingTimers(
            queue_of_offset_owner(self._moment, self._position), self._low_ms, now_ms, since_ms, on_wheel
        )
        self.counts: Sequence[MessageCounter] = (self._timers,)

    def lag_rows(self, _spans: Mapping[Queue, QueueSpan]) -> Iterator[LagRow]:
        """Yield a row of lag if timer messages wait."""
        due = self._timers.pending_due_times_ms()
        if not len(due):
            return
        now_ms = epoch_ms(self._moment.at)
        late = np.sort(due[due <= now_ms])
        note = f"{len(due) - len(late)} more wait for their time"
        if self._delivered is None:
            why = (
                "no snapshot has this broker's progress with its timers: a live broker does not report it, but its "
                "files have it ('snapshot --store', 'archive')"
            )
            offset, least = OffsetAt(0, None), late[:0]
        else:
            why, offset = "", self._delivered
            least = late if offset.is_exact else late[:0] if offset.high is None else late[late >= offset.high]
        yield held_back_lag_row(
            self._moment,
            "timer",
            self._position,
            offset,
            (Backlog(len(least)), Backlog(len(late))),
            (min(least.tolist(), default=None), min(late.tolist(), default=None)),
            (note, why, self._missing),
            is_complete=not self._missing and self._delivered is not None,
        )


class _PendingTimers:
    """Collects the timer messages that are not delivered yet."""

    columns: Collection[str] = (*COLUMNS, "unique_key", "properties")
    log_start: int | None = None

    def __init__(self, queue: Queue, delivered_ms: int, until_ms: int, since_ms: int, on_wheel: int | None) -> None:
        self.starts: Mapping[Queue, int] = {queue: 0}
        self.until_ms: int | None = until_ms
        self.since_ms: int | None = since_ms
        self._topic = queue.topic
        self._now_ms, self._delivered_ms, self._on_wheel = until_ms, delivered_ms, on_wheel
        self._names: list[pa.Array] = []
        self._dues: list[Array] = []
        self._deleted: list[pa.Array] = []

    def add_batch(self, _broker: str, batch: pa.RecordBatch) -> None:
        """Collect the pending timer messages, and the keys of deleted ones, in a batch."""
        is_here = pc.equal(batch.column("topic").cast(pa.string()), self._topic)
        timers = batch.filter(pc.and_(is_here, pa.array(milliseconds_column(batch) <= self._now_ms)))
        if not timers.num_rows:
            return
        deleted = _property_column(timers, _TIMER_DELETED)
        self._deleted.append(deleted.drop_null())
        due = _property_column(timers, TIMER_OUT)
        # Up to 18 digits, which always fit in 64 bits.
        due_ms = pc.cast(pc.if_else(pc.match_substring_regex(due, "^[0-9]{1,18}$"), due, "0"), pa.int64()).fill_null(0)
        times = np.asarray(due_ms.to_numpy(zero_copy_only=False))
        is_pending = times >= self._delivered_ms
        if self._on_wheel is not None:  # a timer that came late is due at once, but is not on the wheel yet
            is_pending |= integer_column(timers, "queue_offset") >= self._on_wheel
        is_pending &= np.asarray(deleted.is_null().to_numpy(zero_copy_only=False))
        kept = timers.filter(pa.array(is_pending))
        keys = kept.column("unique_key").cast(pa.string())
        # A timer without a key is identified by its queue offset.
        places = pc.cast(kept.column("queue_offset"), pa.string())
        topics = _property_column(kept, REAL_TOPIC).fill_null("")
        self._names.append(pc.binary_join_element_wise(topics, pc.coalesce(keys, places), "_"))
        self._dues.append(times[is_pending])

    def partial_counts(self) -> tuple[list[pa.Array], list[Array], list[pa.Array]]:
        """Return the timers collected so far; see `Count.partial_counts`."""
        return self._names, self._dues, self._deleted

    def add_partial_counts(self, counts: tuple[list[pa.Array], list[Array], list[pa.Array]]) -> None:
        """Add other timers; see `Count.add_partial_counts`."""
        for known, more in zip(self.partial_counts(), counts, strict=True):
            known.extend(more)

    def pending_due_times_ms(self) -> Array:
        """Return the due times of timers that are neither delivered nor deleted."""
        if not self._names:
            return np.empty(0, np.int64)
        names, due = pa.concat_arrays(self._names), np.concatenate(self._dues)
        deleted = pa.concat_arrays(self._deleted)
        # A deletion names a timer's topic and key, or the key alone (before 5.1.1).
        keys = pc.replace_substring_regex(names, "^.*_([^_]*)$", r"\1")
        is_deleted = pc.or_(pc.is_in(names, value_set=deleted), pc.is_in(keys, value_set=deleted))
        kept = ~np.asarray(is_deleted.to_numpy(zero_copy_only=False), bool)
        # A timer that is due in more than a week is stored again meanwhile, with the same key. The codes are compared,
        # because numpy's strings lose NULs at their end.
        _, first = np.unique(np.asarray(names.dictionary_encode().indices)[kept], return_index=True)
        times: Array = due[kept][first]
        return times


def _property_column(batch: pa.RecordBatch, name: str) -> pa.Array:
    properties = batch.column("properties")
    return pc.map_lookup(properties, pa.scalar(name, properties.type.key_type), "last").cast(pa.string())


def held_back_lag_row(
    moment: OffsetState,
    kind: str,
    owner: OffsetOwner,
    offset: OffsetAt,
    backlogs: tuple[Backlog, Backlog],
    due_times_ms: Sequence[int | None],
    notes: Sequence[str],
    *,
    is_complete: bool,
) -> LagRow:
    """Return the row of lag for messages that a broker holds back, such as delayed or half messages.

    Args:
        moment: Offsets of the store at the time.
        kind: delay, timer, half or retry_store.
        owner: Queue in which the broker holds them.
        offset: The broker's offset in it.
        backlogs: Smallest and largest possible number of messages behind.
        due_times_ms: Due time of the oldest message, for each of the two.
        notes: Sentences that qualify the row; empty ones are left out.
        is_complete: True if no message is missing.
    """
    least, most = backlogs
    late = [0.0 if due is None else max(0.0, (epoch_ms(moment.at) - due) / 1000) for due in due_times_ms]
    is_slow = most.messages > 0 and kind != "half"
    oldest = due_times_ms[1]
    return LagRow(
        broker=moment.broker,
        kind=kind,
        group=owner.group,
        topic=owner.topic,
        queue_id=owner.queue_id,
        as_of=moment.at,
        offset=offset,
        end=None,
        messages=FigureBounds(least.messages, most.messages if is_complete else None),
        bytes=FigureBounds(least.bytes, most.bytes if is_complete else None),
        seconds=FigureBounds(late[0], late[1] if is_complete else None),
        next_time=None if oldest is None else from_ms(oldest),
        judged=LagJudgement(LagVerdict.SLOW if is_slow else LagVerdict.OK, _OVERDUE if is_slow else ""),
        notes=tuple(note for note in (_OVERDUE if is_slow else "", *notes) if note),
    )


class HeldMessage(NamedTuple):
    """A message that waits in a broker's retry store for another attempt, or is dead.

    Attributes:
        group: The application that failed to consume it.
        topic: Topic of the message.
        queue_id: Queue of the message.
        is_dead: True for a dead letter.
        due: Time of the next delivery; None if not known.
    """

    group: str
    topic: str
    queue_id: int
    is_dead: bool
    due: datetime.datetime | None


@dataclass
class _RetryStoreCounts:
    late: int = 0
    waiting: int = 0
    dead: int = 0
    first: datetime.datetime | None = None
    following: datetime.datetime | None = None

    def add_entry(self, entry: HeldMessage, counted_at: datetime.datetime) -> None:
        if entry.is_dead:
            self.dead += 1
        elif entry.due is not None and entry.due <= counted_at:
            self.late += 1
            self.first = entry.due if self.first is None else min(self.first, entry.due)
        else:
            self.waiting += 1
            if entry.due is not None:
                self.following = entry.due if self.following is None else min(self.following, entry.due)

    def summary_note(self) -> str:
        following = "" if self.following is None else f", the next is due {format_time(self.following)}"
        dead = f"; {format_count(self.dead, 'dead letter')}" if self.dead else ""
        return f"in the retry store; {self.waiting} more wait{following}{dead}"


def read_store_retry_entries(store: Store) -> tuple[list[HeldMessage], list[str]]:
    """Return the messages in the retry store among a store's files, and sentences on files that cannot be read.

    Raises:
        UnsafeFileError: A file of it is a link or not regular.
    """
    read_retry_store = store.format.read_retry_store
    if read_retry_store is None:
        return [], []
    found = read_retry_store(store.folder, store.broker)
    names = ["consumer_group", "topic", "queue_id", "is_dead", "due_timestamp"]
    return [HeldMessage(*row.values()) for row in found.rows.select(names).to_pylist()], list(found.problems)


def read_lake_retry_entries(lake: Lake, broker: str) -> list[HeldMessage]:
    """Return the messages in a broker's retry store, as of the last archive run."""
    if not lake.has_log("consumptions"):  # only JMQ's stores have retry stores
        return []
    try:
        table = lake.table("edges")
    except NoTableError:
        return []
    sql = (
        "SELECT consumer_group, from_topic, from_queue_id, kind, due_timestamp FROM edges "
        f"WHERE absent_reason = {text_literal(AbsentReason.RETRY_STORE)} AND from_broker = {text_literal(broker)}"
    )
    rows = run_sql(table, "edges", sql).read_all().to_pylist()
    return [HeldMessage(group, topic, queue_id, kind == EdgeKind.DEAD, due)
            for group, topic, queue_id, kind, due in (row.values() for row in rows)]  # fmt: skip


def retry_store_lag_rows(moment: OffsetState, entries: Iterable[HeldMessage], selection: Selection) -> Iterator[LagRow]:
    """Yield a row of lag for each group and queue with messages in a broker's retry store.

    Args:
        moment: Offsets of the store's groups.
        entries: Content of the retry store.
    """
    counts: dict[OffsetOwner, _RetryStoreCounts] = {}
    for entry in entries:
        position = OffsetOwner(OffsetKind.GROUP, entry.group, entry.topic, entry.queue_id)
        if is_selected_offset_owner(selection, position):
            counts.setdefault(position, _RetryStoreCounts()).add_entry(entry, moment.at)
    for position, found in sorted(counts.items()):
        late = Backlog(found.late)
        due = None if found.first is None else epoch_ms(found.first)
        offset = moment.offsets.get(position) or OffsetAt(0, 0)
        yield held_back_lag_row(
            moment, KIND, position, offset, (late, late), (due, due), (found.summary_note(),), is_complete=True
        )  # fmt: skip
