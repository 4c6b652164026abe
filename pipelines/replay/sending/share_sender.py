"""Sends a share of a replay, the messages for some queues of the target: part by part, all queues at the same time.

    part → rows for these queues → without those that have an outcome or are in the target already
         → waves of a few seconds → for each queue of the target, batch after batch → rows of the ledger

The next part is read and encoded while one is sent.
"""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnections
from commitlake.pipelines.replay.errors import StoppedError
from commitlake.pipelines.replay.ledger import Counts, Ledger
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.pipelines.replay.queue_mapping import target_queues, target_topics
from commitlake.pipelines.replay.sending.batches import EncodedPart, encode_part
from commitlake.pipelines.replay.sending.queue_sender import QueueSender, SendResult, TargetClient
from commitlake.pipelines.replay.sending.rate_limit import SendPace
from commitlake.pipelines.replay.sent_messages import Origin
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.replays import REPLAY_MESSAGES, SendOutcome

MAX_BATCH_MESSAGES = 1000
_WAVE_SECONDS = 5.0
"""Time between writes to the ledger if the rate is low."""
_AWAY_SECONDS = 1.0
"""Time after which a target that does not accept a batch counts as unavailable: that time is not made up for."""
_MAX_THREADS = 16
_MAX_UNWRITTEN = 200_000
"""Largest number of messages whose outcomes wait to be written to the ledger together."""
_OUTCOMES = arrow_schema(REPLAY_MESSAGES)
_KEPT = ("broker", "physical_offset", "msg_id", "topic", "queue_id", "queue_offset")


@dataclass(frozen=True, slots=True)
class _PreparedPart:
    """Part of a plan that is ready to be sent: rows and encoded messages, sorted by target queue.

    Attributes:
        number: index of the part in the plan.
        rows: rows of `messages`.
        lanes: int64, index of each row's queue.
        stored_ms: int64, store time of each row.
        encoded: the encoded messages.
        errors: by row, the reason why it cannot be sent.
    """

    number: int
    rows: pa.Table
    lanes: Array
    stored_ms: Array
    encoded: EncodedPart
    errors: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class _RecordedParts:
    """Parts of the plan with recorded outcomes, and the first part that may still have messages to send.

    Attributes:
        first: first part that may have messages to send.
        before: number of the plan's messages in the parts before it; 0 if the plan has no limit that needs it.
        end: end of the parts of which the ledger may have messages.
    """

    first: int
    before: int
    end: int


class ShareSender:
    """Sends the messages of a plan for some queues of the target, each exactly once.

    Args:
        messages: Messages of the plan.
        client: Client of the target.
        ledger: Ledger of the replay, which this process has claimed, or its share of it.
        pace: Limits of the rate.
        target_timeout: Time for which the target may not answer, or may refuse everything.
        queues: Indexes of the target's queues; None for all.
        ledger_seconds: Least time between two commits to the ledger; 0 to commit after each wave.
        counts: Numbers of messages that were sent, and that could not be sent, before.
        on_progress: Called now and then with the numbers so far.
        is_resumed: True if a process has begun to send before.
        has_lost_rows: True if the ledger may lack any of the rows that were added to it.
    """

    def __init__(
        self,
        messages: PlannedMessages,
        client: TargetClient,
        ledger: Ledger,
        pace: SendPace,
        target_timeout: datetime.timedelta,
        queues: Collection[int] | None = None,
        ledger_seconds: float = 0.0,
        counts: Counts = Counts(0, 0),  # noqa: B008 (a tuple)
        on_progress: Callable[[Counts], None] = lambda _: None,
        *,
        is_resumed: bool,
        has_lost_rows: bool,
    ) -> None:
        plan = messages.plan
        self._messages, self._plan, self._ledger = messages, plan, ledger
        self._client, self._pace, self._on_progress = client, pace, on_progress
        self._queues = [MessageQueue(queue.topic, queue.broker, queue.queue_id) for queue in plan.target.queues]
        self._own = sorted(range(len(self._queues)) if queues is None else queues)
        self._target_timeout, self._ledger_seconds = target_timeout, ledger_seconds
        self._unwritten: list[pa.Table] = []
        # Tasks that begin at the same time do not all commit at the same time.
        self._written_at = time.monotonic() - random.uniform(0, ledger_seconds)  # noqa: S311 (no secret)
        self._counts = counts
        self._counting = threading.Lock()
        self._is_resumed, self._has_lost_rows = is_resumed or has_lost_rows, has_lost_rows

    def send(self, connections: TrackedConnections) -> bool:
        """Send until all messages of this share have an outcome, or until sending is stopped.

        Args:
            connections: Connections over which the messages are sent.

        Returns:
            True if all messages have an outcome.

        Raises:
            ReplayError: if it cannot continue; the ledger has all that was done.
        """
        try:
            return self._send_parts(connections)
        finally:  # also after an interruption: what has been sent by then is recorded
            self._write_to_ledger()

    def _send_parts(self, connections: TrackedConnections) -> bool:
        """Send the parts of the plan one after another, and return whether all were sent."""
        known = self._read_known_parts()
        ends = {} if self._has_lost_rows else self._ledger.end_offsets()
        senders = {
            number: QueueSender(
                self._client,
                connections,
                queue,
                max(self._plan.target.queues[number].offset, ends.get(queue, 0)),
                self._plan.replay_id,
                self._target_timeout.total_seconds(),
                is_stopped=lambda: self._pace.is_stopped,
                needs_all=self._has_lost_rows,
            )
            for number in self._own
            for queue in [self._queues[number]]
        }
        with ThreadPoolExecutor(min(_MAX_THREADS, len(senders))) as pool, ThreadPoolExecutor(1) as reading:
            try:
                there = self._find_unrecorded_messages(senders, pool)
            except StoppedError:
                return False
            coming = reading.submit(self._prepare_part, known.first, known.before, known)
            for number in range(known.first, len(self._plan.parts)):
                part, before = coming.result()
                if number + 1 < len(self._plan.parts):
                    coming = reading.submit(self._prepare_part, number + 1, before, known)
                if not self._send_part(part, senders, there, pool):
                    return False
        return True

    def _read_known_parts(self) -> _RecordedParts:
        """Read which parts have recorded outcomes, and from which part sending continues."""
        if self._has_lost_rows:
            return _RecordedParts(0, 0, len(self._plan.parts))
        if self._ledger.count_senders() > 1:
            # Each sender has sent its queues' messages part by part; other queues were at other parts.
            last = self._ledger.last_part_by_queue()
            known = [last.get(self._queues[number], -1) for number in self._own]
            # With a limit, it depends on the messages of all earlier parts which ones of a part are sent.
            first = 0 if self._plan.limit else max(0, min(known))
            return _RecordedParts(first, 0, max(known) + 1)
        counts = self._ledger.count_by_part()
        first = max(counts, default=0)
        return _RecordedParts(first, sum(count for part, count in counts.items() if part < first), first + bool(counts))

    def _find_unrecorded_messages(
        self, senders: Mapping[int, QueueSender], pool: ThreadPoolExecutor
    ) -> dict[Origin, tuple[int, int]]:
        """Return messages that an earlier process sent but did not record, with their target queue and offset."""
        by_broker = {sender.queue.broker_name: sender for sender in senders.values()}
        list(
            pool.map(
                QueueSender.wait_for_late_messages if self._is_resumed else QueueSender.check_broker_lists_clients,
                by_broker.values(),
            )
        )
        found = pool.map(QueueSender.find_stored_messages, senders.values()) if self._is_resumed else ()
        return {
            origin: (number, offset)
            for number, offsets in zip(senders, found, strict=self._is_resumed)
            for origin, offset in offsets.items()
        }

    def _prepare_part(
        self, part_number: int, earlier_message_count: int, known_parts: _RecordedParts
    ) -> tuple[_PreparedPart, int]:
        """Read and encode a part of the plan; return it, and the number of the plan's messages up to its end."""
        plan = self._plan
        rows = self._messages.read_rows_of_part(part_number, earlier_message_count)
        end = earlier_message_count + rows.num_rows
        if part_number < known_parts.end:
            done = self._ledger.origins_of_part(part_number)
            rows = rows.filter(pa.array([origin not in done for origin in _origins_of_rows(rows)], pa.bool_()))
        topics = target_topics(rows, plan.target.topic)
        lanes = target_queues(rows, topics, plan.target, self._queues)
        order = np.argsort(lanes, kind="stable")
        if len(self._own) < len(self._queues):
            order = order[np.isin(lanes[order], self._own)]
        rows, lanes = rows.take(pa.array(order)), lanes[order]
        bodies = self._messages.read_bodies_of_rows(rows)
        encoded = encode_part(rows, bodies.values, plan.replay_id)
        # A message without a store time takes the time of the one before it, so that a pace does not wait for it.
        stored = pc.fill_null_backward(pc.fill_null_forward(rows.column("store_timestamp")))
        times = stored.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(0)
        return _PreparedPart(
            part_number, rows, lanes, times.to_numpy() // 1000, encoded, {**bodies.errors, **encoded.refused}
        ), end

    def _send_part(
        self,
        part: _PreparedPart,
        senders: Mapping[int, QueueSender],
        stored_by_origin: Mapping[Origin, tuple[int, int]],
        pool: ThreadPoolExecutor,
    ) -> bool:
        """Send a part and record the outcomes; return whether all of it was sent."""
        left = self._record_without_sending(part, stored_by_origin)
        return all(
            self._send_row_group(part, wave, senders, pool) for wave in self._divide_into_timed_groups(part, left)
        )

    def _record_without_sending(self, part: _PreparedPart, stored_by_origin: Mapping[Origin, tuple[int, int]]) -> Array:
        """Record messages that are already in the target or cannot be sent; return the rows of all others.

        Return the row numbers of the others.
        """
        landings: list[SendResult] = []
        lanes = part.lanes.copy()
        if stored_by_origin:
            places = {
                row: stored_by_origin[origin]
                for row, origin in enumerate(_origins_of_rows(part.rows))
                if origin in stored_by_origin
            }
            if places:
                rows = np.array(list(places), np.int64)
                lanes[rows] = [lane for lane, _ in places.values()]
                offsets = np.array([offset for _, offset in places.values()], np.int64)
                landings.append(SendResult(rows, SendOutcome.FOUND, offsets, 0))
        known = {int(row) for landing in landings for row in landing.rows}
        for row, error in part.errors.items():
            if row not in known:
                outcome = SendOutcome.REFUSED if row in part.encoded.refused else self._messages.failure_outcome
                landings.append(SendResult(np.array([row], np.int64), outcome, None, 0, error))
        self._write_outcomes(part, landings, lanes)
        for landing in landings:
            self._count_outcome(landing)
        recorded = np.concatenate([landing.rows for landing in landings]) if landings else np.empty(0, np.int64)
        left: Array = np.setdiff1d(np.arange(part.rows.num_rows), recorded)
        return left

    def _divide_into_timed_groups(self, part: _PreparedPart, rows: Array) -> Iterator[Array]:
        """Divide rows into groups that are sent and recorded together; at a low rate a group takes a few seconds."""
        times = part.stored_ms[rows]
        while len(rows):
            rate, speed = self._pace.rate, self._pace.speed
            is_now = np.ones(len(rows), np.bool_)
            if rate or speed:
                in_time = np.argsort(times, kind="stable")
                most = max(1, int(rate * _WAVE_SECONDS)) if rate else len(rows)
                if speed:
                    until = times[in_time[0]] + _WAVE_SECONDS * 1000 * speed
                    most = min(most, max(1, int(np.searchsorted(times[in_time], until, side="right"))))
                is_now = np.zeros(len(rows), np.bool_)
                is_now[in_time[:most]] = True
                # Messages of one queue stay in order, whatever their times are.
                is_now = _extend_to_earlier_rows(is_now, part.lanes[rows])
            yield rows[is_now]
            rows, times = rows[~is_now], times[~is_now]

    def _send_row_group(
        self, part: _PreparedPart, group_rows: Array, senders: Mapping[int, QueueSender], pool: ThreadPoolExecutor
    ) -> bool:
        landings: list[SendResult] = []
        lanes = part.lanes[group_rows]
        work: list[Future[bool]] = [
            pool.submit(self._send_to_queue, part, group_rows[lanes == lane], senders[lane], landings)
            for lane in np.unique(lanes).tolist()
        ]
        try:
            wait(work, return_when=FIRST_EXCEPTION)
        finally:  # also after an interruption
            if any(not future.done() or future.exception() for future in work):
                self._pace.stop()
            wait(work)
            self._write_outcomes(part, landings, part.lanes)
        return all([future.result() for future in work])  # noqa: C419 (each may raise)

    def _send_to_queue(self, part: _PreparedPart, rows: Array, sender: QueueSender, results: list[SendResult]) -> bool:
        brokers, offsets = part.rows.column("broker"), part.rows.column("physical_offset")

        def origin_of(row: int) -> Origin:
            return Origin(brokers[row].as_py(), offsets[row].as_py())

        while len(rows):
            most = self._pace.count_sendable_now(part.stored_ms[rows[:MAX_BATCH_MESSAGES]])
            batch = next(part.encoded.iterate_batches(rows, self._plan.batch_bytes, most))
            if not self._pace.wait(len(batch), int(part.stored_ms[batch.rows[0]])):
                return False
            began = time.monotonic()
            try:
                for landing in sender.send(batch, origin_of):
                    results.append(landing)
                    self._count_outcome(landing)
            except StoppedError:  # the run that resumes the replay checks whether the batch was stored
                return False
            if time.monotonic() - began > _AWAY_SECONDS:
                self._pace.restart_speed_clock()
            rows = rows[len(batch) :]
        return True

    def _count_outcome(self, result: SendResult) -> None:
        is_there = result.queue_offsets is not None
        with self._counting:
            sent, failed = self._counts
            self._counts = Counts(sent + len(result.rows) * is_there, failed + len(result.rows) * (not is_there))
            self._on_progress(self._counts)

    def _write_outcomes(self, part: _PreparedPart, results: Sequence[SendResult], queue_indexes: Array) -> None:
        """Collect the outcomes of a part's messages, and write them to the ledger when it is time."""
        if not results:
            return
        rows = np.concatenate([landing.rows for landing in results])
        sizes = [len(landing.rows) for landing in results]
        queues = [self._queues[lane] for lane in queue_indexes[rows].tolist()]
        offsets = [
            pa.nulls(size, pa.int64()) if landing.queue_offsets is None else pa.array(landing.queue_offsets, pa.int64())
            for landing, size in zip(results, sizes, strict=True)
        ]
        columns = {name: part.rows.column(name).take(pa.array(rows)) for name in _KEPT}
        columns |= {
            "replay_id": pa.repeat(self._plan.replay_id, len(rows)),
            "part": pa.repeat(pa.scalar(part.number, pa.int32()), len(rows)),
            "outcome": _repeat_values([str(landing.outcome) for landing in results], sizes, pa.string()),
            "target_topic": pa.array([queue.topic for queue in queues]),
            "target_broker": pa.array([queue.broker_name for queue in queues]),
            "target_queue_id": pa.array([queue.queue_id for queue in queues], pa.int32()),
            "target_offset": pa.chunked_array(offsets),
            "attempts": _repeat_values([landing.attempts for landing in results], sizes, pa.int32()),
            "sent_at": pa.repeat(pa.scalar(datetime.datetime.now(datetime.UTC), pa.timestamp("us", "UTC")), len(rows)),
            "error": _repeat_values([landing.error for landing in results], sizes, pa.string()),
        }
        self._unwritten.append(pa.table({name: columns[name] for name in REPLAY_MESSAGES.names}).cast(_OUTCOMES))
        is_due = time.monotonic() - self._written_at >= self._ledger_seconds
        if is_due or sum(table.num_rows for table in self._unwritten) >= _MAX_UNWRITTEN:
            self._write_to_ledger()

    def _write_to_ledger(self) -> None:
        """Write collected outcomes to the ledger in one commit."""
        if self._unwritten:
            rows = pa.concat_tables(self._unwritten)
            self._unwritten.clear()  # if this fails, another process has taken over, or the replay ends
            self._ledger.add_outcomes(rows)
        self._written_at = time.monotonic()


def _origins_of_rows(rows: pa.Table) -> Iterator[Origin]:
    brokers = rows.column("broker").to_pylist()
    return map(Origin, brokers, rows.column("physical_offset").to_pylist())


def _repeat_values(values: Sequence[object], sizes: Sequence[int], data_type: pa.DataType) -> pa.Array:
    """Return an array with each value repeated as often as `sizes` says."""
    return pa.array(values, data_type).take(pa.array(np.repeat(np.arange(len(values)), sizes)))


def _extend_to_earlier_rows(is_chosen: Array, queue_indexes: Array) -> Array:
    """Extend a mask to all rows before the last chosen row of each target queue; rows are sorted by queue."""
    places = np.arange(len(queue_indexes))
    last = np.full(int(queue_indexes.max()) + 1, -1)
    np.maximum.at(last, queue_indexes[is_chosen], places[is_chosen])
    chosen: Array = places <= last[queue_indexes]
    return chosen
