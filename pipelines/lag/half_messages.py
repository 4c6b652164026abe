"""Half messages of transactions in flight: half messages that no op record marks as finished.

The broker's own offset in the half queue only says that the halves before it are finished. For later halves, the op
records after the broker's offset in the op queue show which are finished. A half that was stored again is counted once,
by its UNIQ_KEY. A half that the broker gave up is not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.lag.backlog_counting import COLUMNS, Backlog, Queue, integer_column, milliseconds_column
from commitlake.pipelines.lag.group_lag import LagRow
from commitlake.pipelines.lag.held_back_messages import held_back_lag_row
from commitlake.pipelines.lag.offsets import OffsetAt, OffsetState
from commitlake.pipelines.lag.queue_offset_spans import BODY, MessageCounter, QueueSpan
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner
from commitlake.schemas.layouts.rocketmq.topics import (
    CHECK_TIMES,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_QUEUE_OFFSET,
    TRANSACTION_GROUP,
    parse_op_offsets,
)
from commitlake.schemas.times import epoch_ms

_NOTE = "without an op record; a broker 5.x writes these up to 3 s after the producer's answer"


class HalfLag:
    """Counts the half messages without an outcome yet (in flight), in each half queue.

    Args:
        moment: Offsets of the broker's own group.
        missing: A sentence on messages that may be missing; empty if none are.

    Attributes:
        counts: Counters to feed with messages.
    """

    def __init__(self, moment: OffsetState, missing: str) -> None:
        self._moment, self._missing = moment, missing
        until_ms = epoch_ms(moment.at)
        own = {position: offset for position, offset in moment.offsets.items() if position.group == TRANSACTION_GROUP}
        self._queues: dict[OffsetOwner, tuple[OffsetAt, _HalfMessages, _OpRecords]] = {}
        for position, offset in sorted(own.items()):
            if position.topic == HALF_TOPIC:
                ops = own.get(OffsetOwner(OffsetKind.GROUP, TRANSACTION_GROUP, OP_TOPIC, position.queue_id))
                op_queue = Queue(moment.broker, OP_TOPIC, position.queue_id)
                half_queue = Queue(moment.broker, HALF_TOPIC, position.queue_id)
                self._queues[position] = (
                    offset,
                    _HalfMessages(half_queue, offset.low, until_ms),
                    _OpRecords(op_queue, 0 if ops is None else ops.low, until_ms),
                )
        self._given_up = _GivenUpKeys(Queue(moment.broker, GIVEN_UP_TOPIC, 0), until_ms)
        parts = [part for _, halves, ops in self._queues.values() for part in (halves, ops)]
        self.counts: Sequence[MessageCounter] = [*parts, self._given_up] if parts else ()

    def lag_rows(self, _spans: Mapping[Queue, QueueSpan]) -> Iterator[LagRow]:
        """Yield a row of lag for each half queue that has, or may have, half messages without an outcome."""
        for position, (offset, halves, ops) in self._queues.items():
            most, absent = halves.count_in_flight(ops.finished, self._given_up.unique_keys)
            reasons = [self._missing]
            least = most
            if ops.unreadable:
                reasons.append(
                    f"{ops.unreadable} op records have no body here, so it is not known which half messages they finish"
                )
                least = Backlog()
            if absent:
                reasons.append(
                    f"{absent} half messages after the broker's offset are missing here and may be in flight"
                )
                most = Backlog(most.messages + absent, most.bytes, most.next_offset, most.next_time_ms)
            if not (most.messages or self._missing):
                continue
            notes = (f"half messages {_NOTE}", *reasons)
            due_ms = (least.next_time_ms, most.next_time_ms)
            is_complete = not (self._missing or absent)
            row = held_back_lag_row(
                self._moment, "half", position, offset, (least, most), due_ms, notes, is_complete=is_complete
            )
            yield row


class _HalfMessages:
    """Collects the half messages of one half queue from an offset on."""

    columns: Collection[str] = (*COLUMNS, "born_timestamp", "unique_key", "properties")
    log_start: int | None = None
    since_ms: int | None = None

    def __init__(self, queue: Queue, start: int, until_ms: int) -> None:
        self.starts: Mapping[Queue, int] = {queue: start}
        self.until_ms: int | None = until_ms
        self._queue, self._start = queue, start
        self._batches: list[pa.RecordBatch] = []

    def add_batch(self, _broker: str, batch: pa.RecordBatch) -> None:
        """Collect the half messages in a batch."""
        if (kept := _filter_queue_rows(batch, self._queue, self._start, self.until_ms)).num_rows:
            properties = kept.column("properties")
            first = pc.map_lookup(properties, pa.scalar(PREPARED_QUEUE_OFFSET, properties.type.key_type), "last")
            checks = pc.map_lookup(properties, pa.scalar(CHECK_TIMES, properties.type.key_type), "last")
            is_again = pc.or_(pc.is_valid(first), pc.is_valid(checks))
            # For a half that was stored again, only its producer's clock shows since when it has been in flight.
            stored, born = pa.array(milliseconds_column(kept)), pa.array(milliseconds_column(kept, "born_timestamp"))
            places = pc.cast(kept.column("queue_offset"), pa.string())
            self._batches.append(
                pa.record_batch(
                    {
                        "queue_offset": kept.column("queue_offset"),
                        "prepared": first.cast(pa.string()),
                        "size": kept.column("size").cast(pa.int64()),
                        "time": pc.if_else(is_again, pc.min_element_wise(stored, born), stored),
                        "name": pc.coalesce(kept.column("unique_key").cast(pa.string()), places),
                    }
                )
            )

    def partial_counts(self) -> list[pa.RecordBatch]:
        """Return the half messages collected so far; see `Count.partial_counts`."""
        return self._batches

    def add_partial_counts(self, counts: list[pa.RecordBatch]) -> None:
        """Add other half messages; see `Count.add_partial_counts`."""
        self._batches += counts

    def count_in_flight(self, finished_offsets: Collection[int], given_up_keys: pa.Array) -> tuple[Backlog, int]:
        """Return number and size of the half messages without an outcome, and the number of missing half messages.

        Args:
            finished_offsets: Queue offsets that op records mark as finished.
            given_up_keys: UNIQ_KEYs of half messages that the broker gave up.
        """
        if not self._batches:
            return Backlog(), 0
        halves = pa.Table.from_batches(self._batches).sort_by("queue_offset").combine_chunks()
        offsets = np.asarray(halves["queue_offset"])
        absent = int(offsets[-1]) + 1 - self._start - len(np.unique(offsets))
        numbers_done = pa.array(sorted(finished_offsets), pa.int64())
        texts_done = pc.cast(numbers_done, pa.string())
        is_done = pc.or_(
            pc.is_in(halves["queue_offset"].cast(pa.int64()), value_set=numbers_done),
            pc.is_in(halves["prepared"], value_set=texts_done),
        )
        done = pa.concat_arrays([*halves["name"].filter(is_done).chunks, given_up_keys])
        open_halves = halves.filter(pc.invert(pc.is_in(halves["name"], value_set=done)))
        if not len(open_halves):
            return Backlog(), absent
        # The codes of Arrow, because numpy's strings lose NULs at their end.
        names = np.asarray(open_halves["name"].combine_chunks().dictionary_encode().indices)
        _, last = np.unique(names[::-1], return_index=True)  # the newest record of a half that was stored again
        sizes: Array = np.asarray(open_halves["size"])[::-1][last]
        behind = Backlog(
            messages=len(last),
            bytes=int(sizes.sum()),
            next_offset=int(np.asarray(open_halves["queue_offset"])[0]),
            next_time_ms=int(np.asarray(open_halves["time"]).min()),
        )
        return behind, absent


class _OpRecords:
    """Collects the queue offsets of half messages that op records mark as finished.

    Attributes:
        finished: Queue offsets of the finished half messages.
        unreadable: Number of op records whose body is missing.
    """

    columns: Collection[str] = (*COLUMNS, BODY)
    log_start: int | None = None
    since_ms: int | None = None

    def __init__(self, queue: Queue, start: int, until_ms: int) -> None:
        self.starts: Mapping[Queue, int] = {queue: start}
        self.until_ms: int | None = until_ms
        self.finished: set[int] = set()
        self.unreadable = 0
        self._queue, self._start = queue, start

    def add_batch(self, _broker: str, batch: pa.RecordBatch) -> None:
        """Collect the offsets of finished half messages from the op records in a batch."""
        for body in _filter_queue_rows(batch, self._queue, self._start, self.until_ms).column(BODY).to_pylist():
            if body is None:
                self.unreadable += 1
            else:
                self.finished.update(parse_op_offsets(body))

    def partial_counts(self) -> tuple[set[int], int]:
        """Return what was collected so far; see `Count.partial_counts`."""
        return self.finished, self.unreadable

    def add_partial_counts(self, counts: tuple[set[int], int]) -> None:
        """Add what other op records mark as finished; see `Count.add_partial_counts`."""
        finished, unreadable = counts
        self.finished |= finished
        self.unreadable += unreadable


class _GivenUpKeys:
    """Collects the UNIQ_KEYs of half messages that the broker gave up."""

    columns: Collection[str] = (*COLUMNS, "unique_key")
    log_start: int | None = None
    since_ms: int | None = None

    def __init__(self, queue: Queue, until_ms: int) -> None:
        self.starts: Mapping[Queue, int] = {queue: 0}
        self.until_ms: int | None = until_ms
        self._queue = queue
        self._keys: list[pa.Array] = []

    def add_batch(self, _broker: str, batch: pa.RecordBatch) -> None:
        """Collect the UNIQ_KEYs of the given-up half messages in a batch."""
        here = _filter_queue_rows(batch, self._queue, 0, self.until_ms)
        self._keys.append(here.column("unique_key").cast(pa.string()).drop_null())

    def partial_counts(self) -> list[pa.Array]:
        """Return the keys collected so far; see `Count.partial_counts`."""
        return self._keys

    def add_partial_counts(self, counts: list[pa.Array]) -> None:
        """Add other keys; see `Count.add_partial_counts`."""
        self._keys += counts

    @property
    def unique_keys(self) -> pa.Array:
        """UNIQ_KEYs collected so far."""
        return pa.concat_arrays([pa.array([], pa.string()), *self._keys])


def _filter_queue_rows(batch: pa.RecordBatch, queue: Queue, start_offset: int, until_ms: int | None) -> pa.RecordBatch:
    """Return the messages of one queue in a batch, from an offset on, that were stored by `until_ms`."""
    kept = np.asarray(pc.equal(batch.column("topic").cast(pa.string()), queue.topic).to_numpy(zero_copy_only=False))
    kept = (
        kept
        & (integer_column(batch, "queue_id") == queue.queue_id)
        & (integer_column(batch, "queue_offset") >= start_offset)
    )
    if until_ms is not None:
        kept &= milliseconds_column(batch) <= until_ms
    return batch.filter(pa.array(kept))
