"""Counts the messages after given offsets of queues. Batches may come in any order.

A cursor is an offset in a queue and a choice of messages. It counts the wanted messages at or after its offset. One
pass over the messages serves any number of cursors: cursors of one queue with the same choice are counted together, by
binary search. Memory is bounded by the number of cursors and queues, not of messages.

A history of lag needs the number of messages between two offsets for many times. Each message is therefore counted in
the interval between the two nearest of given offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.lag.subscription_filter import ALL, SubscriptionFilter

COLUMNS = ("physical_offset", "topic", "queue_id", "queue_offset", "size", "store_timestamp")
"""Columns of every batch. `tags` and `properties` are read as well if a choice needs them."""
_NONE = np.iinfo(np.int64).max
"""Placeholder for an unknown offset or time; larger than every real one."""


class Queue(NamedTuple):
    """Broker (the store's name), topic and queue id."""

    broker: str
    topic: str
    queue_id: int


class LagCursor(NamedTuple):
    """Position in a queue from which on the messages that a subscription wants are counted.

    Attributes:
        queue: The queue.
        offset: Messages at or after this offset count.
        wanted: Choice of messages to count.
        until_ms: Messages that were stored later do not count, ms since 1970; None for all.
    """

    queue: Queue
    offset: int
    wanted: SubscriptionFilter = ALL
    until_ms: int | None = None


class Backlog(NamedTuple):
    """Number and size of the messages from a cursor on, with the store times of the messages just after and before it.

    Attributes:
        messages: Number of messages.
        bytes: Size of their records in the log.
        next_offset: Offset of the first message; None if there is none.
        next_time_ms: Store time of the first message, ms since 1970.
        last_time_ms: Store time of the message just before the cursor, ms since 1970; None if it is not known or was
            not requested.
    """

    messages: int = 0
    bytes: int = 0
    next_offset: int | None = None
    next_time_ms: int | None = None
    last_time_ms: int | None = None


_Arrays: TypeAlias = tuple[Array, ...]
_Choice: TypeAlias = tuple[SubscriptionFilter, int | None]
PartialBacklogs: TypeAlias = tuple[Mapping[tuple[Queue, _Choice], _Arrays], Mapping[Queue, _Arrays]]
"""Counts by queue and choice of messages, and by queue what was found of the messages before its cursors."""


class _CursorCounts:
    """Cursors of one queue with the same filter, and the number of messages from each of them on."""

    def __init__(self, cursors: Iterable[LagCursor]) -> None:
        self.cursors = sorted(cursors, key=lambda cursor: cursor.offset)
        self.offsets = np.array([cursor.offset for cursor in self.cursors], np.int64)
        self.messages = np.zeros(len(self.offsets), np.int64)
        self.bytes = np.zeros(len(self.offsets), np.int64)
        self.next_offset = np.full(len(self.offsets), _NONE)
        self.next_time = np.full(len(self.offsets), _NONE)
        self.next_physical = np.full(len(self.offsets), _NONE)

    def count_messages(self, offsets: Array, sizes: Array, physical_offsets: Array, times: Array | None) -> None:
        """Add to each cursor's count the given messages at or after it.

        Args:
            offsets: Queue offsets, in any order.
            sizes: Bytes of the records.
            physical_offsets: Their physical offsets.
            times: Store times; None if they are not known.
        """
        if (offsets[1:] < offsets[:-1]).any():
            order = np.argsort(offsets, kind="stable")
            offsets, sizes, physical_offsets = offsets[order], sizes[order], physical_offsets[order]
            times = None if times is None else times[order]
        first = np.searchsorted(offsets, self.offsets)
        before = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self.messages += len(offsets) - first
        self.bytes += before[-1] - before[first]
        # Clipped, so that cursors after the last message have a row, too; `is_next` leaves them out.
        row = np.minimum(first, len(offsets) - 1)
        is_next = (first < len(offsets)) & (offsets[row] < self.next_offset)
        self.next_offset[is_next] = offsets[row][is_next]
        self.next_physical[is_next] = physical_offsets[row][is_next]
        self.next_time[is_next] = _NONE if times is None else times[row][is_next]

    def partial_counts(self) -> _Arrays:
        """Return the counts so far, for `add_partial_counts` of an object with the same cursors."""
        return self.messages, self.bytes, self.next_offset, self.next_time, self.next_physical

    def add_partial_counts(self, counts: _Arrays) -> None:
        """Add the counts of other messages of the queue."""
        messages, sizes, offsets, times, physical_offsets = counts
        self.messages += messages
        self.bytes += sizes
        is_next = offsets < self.next_offset
        self.next_offset[is_next] = offsets[is_next]
        self.next_time[is_next] = times[is_next]
        self.next_physical[is_next] = physical_offsets[is_next]

    def iter_backlogs(self, preceding_times: Array | None) -> Iterable[tuple[LagCursor, Backlog]]:
        """Yield each cursor with its counts.

        Args:
            preceding_times: Store time of the message before each cursor; None if it was not requested.
        """
        for place, cursor in enumerate(self.cursors):
            offset, time = int(self.next_offset[place]), int(self.next_time[place])
            last_time = _NONE if preceding_times is None else int(preceding_times[place])
            yield (
                cursor,
                Backlog(
                    int(self.messages[place]),
                    int(self.bytes[place]),
                    None if offset == _NONE else offset,
                    None if time == _NONE else time,
                    None if last_time == _NONE else last_time,
                ),
            )


class _PrecedingMessages:
    """Finds the store times of the messages just before the cursors of one queue, including unwanted messages."""

    def __init__(self, cursors: Iterable[LagCursor]) -> None:
        self.offsets: Array = np.unique(np.array([cursor.offset - 1 for cursor in cursors], np.int64))
        self.times = np.full(len(self.offsets), _NONE)
        self.physical = np.full(len(self.offsets), -1, np.int64)

    def add_messages(self, offsets: Array, physical_offsets: Array, times: Array | None) -> None:
        """Look for the messages just before cursors among the given messages of the queue.

        If several have the same queue offset, the newest counts.
        """
        places = np.minimum(np.searchsorted(self.offsets, offsets), len(self.offsets) - 1)
        found = np.flatnonzero((self.offsets[places] == offsets) & (physical_offsets > self.physical[places]))
        found = found[np.argsort(physical_offsets[found], kind="stable")]  # the last of repeated assignments remains
        self.physical[places[found]] = physical_offsets[found]
        self.times[places[found]] = _NONE if times is None else times[found]

    def add_partial_counts(self, counts: _Arrays) -> None:
        """Add the times and physical offsets that were found in other messages of the queue."""
        times, physical_offsets = counts
        is_newer = physical_offsets > self.physical
        self.physical[is_newer] = physical_offsets[is_newer]
        self.times[is_newer] = times[is_newer]

    def store_times_before(self, offsets: Array) -> Array:
        """Return the store time of the message before each of the given cursor offsets."""
        return self.times[np.searchsorted(self.offsets, offsets - 1)]


class BacklogCounter:
    """Counts the messages at or after positions in queues (cursors), such as the offsets of consumer groups.

    Args:
        cursors: The cursors.
        until_ms: Messages that were stored later do not count, ms since 1970; None for all.
        log_start: Records that begin before this physical offset do not count, because the broker has deleted them.
        topics: By topic, the choices that count in all of its queues, also in those of no cursor.
        finds_last: True to find the store time of the message just before each cursor.

    Attributes:
        starts: The queues, each with the smallest offset that its cursors need.
        columns: The columns that batches must have.
        until_ms: As given.
        since_ms: Always None: messages of any age count.
        log_start: As given.
        topics: As given.
    """

    def __init__(
        self,
        cursors: Iterable[LagCursor],
        until_ms: int | None = None,
        log_start: int | None = None,
        topics: Mapping[str, Collection[SubscriptionFilter]] | None = None,
        *,
        finds_last: bool = False,
    ) -> None:
        self.until_ms = until_ms
        self.topics: Mapping[str, Collection[SubscriptionFilter]] = topics or {}
        self.since_ms: int | None = None
        self.log_start = log_start
        self._floors: Mapping[Queue, int] = {}
        cursors = set(cursors)
        chosen: dict[Queue, dict[_Choice, list[LagCursor]]] = defaultdict(lambda: defaultdict(list))
        for cursor in cursors:
            chosen[cursor.queue][cursor.wanted, cursor.until_ms].append(cursor)
        self._places = {
            queue: {choice: _CursorCounts(some) for choice, some in choices.items()}
            for queue, choices in chosen.items()
        }
        self._last = (
            {queue: _PrecedingMessages(_all_cursors(choices)) for queue, choices in self._places.items()}
            if finds_last
            else {}
        )
        self.starts: dict[Queue, int] = {
            # One message before the first cursor if its time is asked for.
            queue: max(0, min(int(places.offsets[0]) for places in choices.values()) - (queue in self._last))
            for queue, choices in self._places.items()
        }
        wanted = {cursor.wanted for cursor in cursors}.union(*self.topics.values())
        self._needs_messages = {
            cursor.queue.topic for cursor in cursors if not cursor.wanted.selects_all or cursor.until_ms is not None
        } | {topic for topic, choices in self.topics.items() if not all(choice.selects_all for choice in choices)}
        self.columns: Collection[str] = (
            *COLUMNS,
            *(["tags"] if any(choice.tags is not None for choice in wanted) else []),
            *(["properties"] if any(choice.needs_properties for choice in wanted) else []),
        )

    def can_count_index_entries(self, topic: str) -> bool:
        """Return whether a topic can be counted by ConsumeQueue entries alone, because no filter must be applied."""
        return topic not in self._needs_messages

    def add_queue(self, queue: Queue) -> None:
        """Add a cursor at offset 0 for a queue without one, if its topic is one of `topics`."""
        if queue in self._places or queue.topic not in self.topics:
            return
        self._places[queue] = {
            (wanted, None): _CursorCounts([LagCursor(queue, 0, wanted)]) for wanted in self.topics[queue.topic]
        }
        self.starts[queue] = 0

    def reset_counts(self, restart_offsets: Mapping[Queue, int]) -> None:
        """Reset all counts to zero, and exclude the records of a deleted topic before its queues' restart offsets.

        Args:
            restart_offsets: Physical offsets by queue; records before them do not count. Other queues have no such
                limit.
        """
        self._floors = restart_offsets
        for choices in self._places.values():
            for choice, places in choices.items():
                choices[choice] = _CursorCounts(places.cursors)
        for queue in self._last:
            self._last[queue] = _PrecedingMessages(_all_cursors(self._places[queue]))

    def add_batch(self, broker: str, batch: pa.RecordBatch) -> None:
        """Count the messages of a batch from one store."""
        times = milliseconds_column(batch)
        is_counted = np.ones(batch.num_rows, bool) if self.until_ms is None else times <= self.until_ms
        physical = integer_column(batch, "physical_offset")
        if self.log_start is not None:
            is_counted &= physical >= self.log_start
        offsets, sizes = integer_column(batch, "queue_offset"), integer_column(batch, "size")
        selected: dict[SubscriptionFilter, Array] = {}
        for queue, every_row in rows_by_queue(broker, batch):
            rows = every_row
            if queue in self._floors:
                rows = rows[physical[rows] >= self._floors[queue]]
            if queue in self._last:
                here = rows[is_counted[rows]]
                self._last[queue].add_messages(offsets[here], physical[here], times[here])
            for (wanted, until_ms), places in self._places.get(queue, {}).items():
                if wanted not in selected:
                    selected[wanted] = is_counted & wanted.select_rows(batch)
                here = rows[selected[wanted][rows]]
                if until_ms is not None:
                    here = here[times[here] <= until_ms]
                if len(here):
                    places.count_messages(offsets[here], sizes[here], physical[here], times[here])

    def partial_counts(self) -> PartialBacklogs:
        """Return the counts of all queues with messages; see `Count.partial_counts`."""
        counts = {
            (queue, choice): places.partial_counts()
            for queue, choices in self._places.items()
            for choice, places in choices.items()
            if places.messages.any()
        }
        last = {queue: (last.times, last.physical) for queue, last in self._last.items() if (last.physical >= 0).any()}
        return counts, last

    def add_partial_counts(self, counts: PartialBacklogs) -> None:
        """Add counts of other messages; see `Count.add_partial_counts`."""
        of_cursors, last = counts
        for (queue, choice), arrays in of_cursors.items():
            self._places[queue][choice].add_partial_counts(arrays)
        for queue, arrays in last.items():
            self._last[queue].add_partial_counts(arrays)

    def count_index_entries(self, queue: Queue, offsets: Array, sizes: Array, physical_offsets: Array) -> None:
        """Count messages of a queue, given by their ConsumeQueue entries."""
        kept = physical_offsets >= max(self.log_start or 0, self._floors.get(queue, 0))
        if kept.any():
            for places in self._places.get(queue, {}).values():
                places.count_messages(offsets[kept], sizes[kept], physical_offsets[kept], None)
            if queue in self._last:
                self._last[queue].add_messages(offsets[kept], physical_offsets[kept], None)

    def set_next_message_times(self, find_store_time: Callable[[Queue, int, int], int]) -> None:
        """Set the store time of each cursor's next message, where only ConsumeQueue entries were read.

        Args:
            find_store_time: Returns the store time, ms since 1970, of a message, given its queue, queue offset and
                physical offset.
        """
        known: dict[int, int] = {}
        for queue, choices in self._places.items():
            for places in choices.values():
                for place in np.flatnonzero((places.next_offset != _NONE) & (places.next_time == _NONE)).tolist():
                    physical = int(places.next_physical[place])
                    if physical not in known:
                        known[physical] = find_store_time(queue, int(places.next_offset[place]), physical)
                    places.next_time[place] = known[physical]

    def set_preceding_message_times(self, find_store_time: Callable[[Queue, int, int], int | None]) -> None:
        """Set the store time of the message before each cursor, where only ConsumeQueue entries were read.

        Args:
            find_store_time: As of `set_next_message_times`, but returns None for a message that cannot be read.
        """
        for queue, last in self._last.items():
            for place in np.flatnonzero((last.physical >= 0) & (last.times == _NONE)).tolist():
                time = find_store_time(queue, int(last.offsets[place]), int(last.physical[place]))
                last.times[place] = _NONE if time is None else time

    @property
    def backlog_by_cursor(self) -> dict[LagCursor, Backlog]:
        """Backlog of each cursor, from the messages counted so far."""
        found: dict[LagCursor, Backlog] = {}
        for queue, choices in self._places.items():
            last = self._last.get(queue)
            for places in choices.values():
                found.update(places.iter_backlogs(None if last is None else last.store_times_before(places.offsets)))
        return found


def _all_cursors(counts_by_filter: Mapping[_Choice, _CursorCounts]) -> list[LagCursor]:
    return [cursor for places in counts_by_filter.values() for cursor in places.cursors]


def milliseconds_column(batch: pa.RecordBatch, name: str = "store_timestamp") -> Array:
    """Return a column of times as milliseconds since 1970."""
    column = batch.column(name)
    times = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return np.asarray(times.to_numpy(zero_copy_only=False))


def integer_column(batch: pa.RecordBatch, name: str) -> Array:
    """Return a column of integers as an array."""
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False))


def rows_by_queue(broker: str, batch: pa.RecordBatch) -> Iterable[tuple[Queue, Array]]:
    """Yield each queue with messages in a batch, and the indexes of its rows."""
    if not batch.num_rows:
        return
    topics = batch.column("topic")
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    names = topics.dictionary.to_pylist()
    queue_ids = batch.column("queue_id").to_numpy(zero_copy_only=False).astype(np.int64)
    # A damaged record may have a negative queue number, whose sign must not reach the topic's code.
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32 | queue_ids & 0xFFFFFFFF
    order = np.argsort(codes, kind="stable")
    found, starts = np.unique(codes[order], return_index=True)
    for code, rows in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
        queue_id = code & 0xFFFFFFFF
        yield Queue(broker, names[code >> 32], queue_id - (1 << 32) if queue_id >> 31 else queue_id), rows


class OffsetRangeCounter:
    """Counts the messages that a subscription wants between given offsets of queues.

    Args:
        places: By queue and choice, the offsets that separate the counts, at least one each.
        floors: Physical offsets by queue; records before them do not count. Other queues have no such limit.
        log_end: Records that begin at or after this physical offset are not needed; None for no limit.

    Attributes:
        starts: The queues, each with its smallest offset.
        columns: The columns that batches must have.
        until_ms: None, like `since_ms` and `log_start`: only the offsets limit what counts.
    """

    def __init__(
        self,
        places: Mapping[tuple[Queue, SubscriptionFilter], Iterable[int]],
        floors: Mapping[Queue, int] | None = None,
        log_end: int | None = None,
    ) -> None:
        self.log_end = log_end
        self._offsets = {key: np.unique(np.asarray(list(offsets), np.int64)) for key, offsets in places.items()}
        self._counts = {key: np.zeros(len(offsets) + 1, np.int64) for key, offsets in self._offsets.items()}
        self._floors = floors or {}
        self._of_queue: dict[Queue, list[SubscriptionFilter]] = defaultdict(list)
        starts: dict[Queue, int] = {}
        for (queue, wanted), offsets in self._offsets.items():
            self._of_queue[queue].append(wanted)
            starts[queue] = min(int(offsets[0]), starts.get(queue, int(offsets[0])))
        self.starts: Mapping[Queue, int] = starts
        self.columns: Collection[str] = (
            *COLUMNS,
            *(["tags"] if any(wanted.tags is not None for _, wanted in places) else []),
            *(["properties"] if any(wanted.needs_properties for _, wanted in places) else []),
        )
        self.until_ms: int | None = None
        self.since_ms: int | None = None
        self.log_start: int | None = None

    def add_batch(self, broker: str, batch: pa.RecordBatch) -> None:
        """Count the messages of a batch from one store."""
        offsets, physical = integer_column(batch, "queue_offset"), integer_column(batch, "physical_offset")
        chosen: dict[SubscriptionFilter, Array] = {}
        for queue, rows in rows_by_queue(broker, batch):
            for wanted in self._of_queue.get(queue, ()):
                if wanted not in chosen:
                    chosen[wanted] = wanted.select_rows(batch)
                here = rows[chosen[wanted][rows] & (physical[rows] >= self._floors.get(queue, 0))]
                counts = self._counts[queue, wanted]
                # A message at a bound belongs to the interval that begins there.
                places = np.searchsorted(self._offsets[queue, wanted], offsets[here], side="right")
                counts += np.bincount(places, minlength=len(counts))

    def partial_counts(self) -> dict[tuple[Queue, SubscriptionFilter], Array]:
        """Return the counts of all queues with messages; see `Count.partial_counts`."""
        return {key: counts for key, counts in self._counts.items() if counts.any()}

    def add_partial_counts(self, counts: Mapping[tuple[Queue, SubscriptionFilter], Array]) -> None:
        """Add counts of other messages; see `Count.add_partial_counts`."""
        for key, more in counts.items():
            self._counts[key] += more

    def count_between(
        self, queue: Queue, message_filter: SubscriptionFilter, start_offset: int, end_offset: int
    ) -> int:
        """Return the number of wanted messages from one given offset to before another one."""
        offsets, counts = self._offsets[queue, message_filter], self._counts[queue, message_filter]
        first, last = np.searchsorted(offsets, [start_offset, end_offset])
        return int(counts[first + 1 : last + 1].sum())
