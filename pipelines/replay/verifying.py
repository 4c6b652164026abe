"""Reads the messages that a replay sent back from the target and compares them with the lake.

Each queue of the target is read from its end when the plan was made to its current end. A message in the ledger must be
there once, with the body, the flag and the properties that were sent, and after the messages that were sent to the same
queue before it. A message of the replay that is not in the ledger was sent twice.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.rocketmq.pulled_records import PulledRecords
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import QueueRange, read_range
from commitlake.pipelines.replay.ledger import Ledger, add_replay_event
from commitlake.pipelines.replay.origin_properties import DROPPED, ORIGIN_BROKER, ORIGIN_PHYSICAL_OFFSET, REPLAY_ID
from commitlake.pipelines.replay.planned_messages import PlannedMessages
from commitlake.pipelines.replay.sending.batches import added_properties, split_properties
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.integer_parsing import parse_int64
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED, COMPRESSION_MASK
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.tables.messages import SOURCE
from commitlake.schemas.tables.replays import ReplayEvent

MAX_EXAMPLES = 1000
_MAX_THREADS = 16
_ANSWERS_BYTES = 4 << 20
_COLUMNS = ("queue_offset", "sys_flag", "flag", "body_size", "body_crc", "properties", "body")
_SCHEMA = arrow_schema(SOURCE.select_columns(_COLUMNS))
_CODEC_BITS = COMPRESSED | COMPRESSION_MASK
_QUEUE = ("target_topic", "target_broker", "target_queue_id")
_DIFFERENCE = [*_QUEUE, "target_offset", "broker", "physical_offset"]
"""Columns of `replay_messages` with the fields of a `ReplayDifference`."""


class SendFault(StrEnum):
    """Fault of one message that a replay has sent."""

    MISSING = "missing"
    """The target has no message of the replay at the offset in the ledger."""
    EXPIRED = "expired"
    """The target has deleted the message at that offset."""
    BODY = "body"
    """The message has a different body."""
    PROPERTIES = "properties"
    """The message lacks a property, or has a different value of one."""
    FLAG = "flag"
    """The message has a different flag."""
    ORDER = "order"
    """The message is before one that was to be sent to the same queue before it."""
    TWICE = "twice"
    """The message is in the target without a row in the ledger."""
    NOT_IN_LAKE = "not_in_lake"
    """The message is in the ledger but no longer in the lake, so it cannot be compared."""


class ReplayDifference(NamedTuple):
    """A message in the target, or missing there, that is not as it was sent.

    Attributes:
        problem: the fault.
        topic: topic in the target.
        broker: broker in the target.
        queue_id: queue in the target.
        queue_offset: queue offset in the target; None if not known.
        origin_broker: store from which it was archived.
        origin_offset: its physical offset in that store.
    """

    problem: SendFault
    topic: str
    broker: str
    queue_id: int
    queue_offset: int | None
    origin_broker: str | None
    origin_offset: int | None


@dataclass
class Verification:
    """Result of comparing a replay's target with what was sent: counts, and the first differences.

    Attributes:
        compared: number of messages in the target that were compared.
        without_body: number of these that were compared by size and checksum, because the lake no longer has their
            bodies.
        problems: number of messages with each problem.
        examples: the first `MAX_EXAMPLES` differences.
    """

    compared: int = 0
    without_body: int = 0
    problems: Counter[SendFault] = field(default_factory=Counter)
    examples: list[ReplayDifference] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def add_differences(self, differences: list[ReplayDifference]) -> None:
        """Count differences, and keep the first ones as examples."""
        with self._lock:
            # Threads of several queues add at the same time.
            self.problems.update(difference.problem for difference in differences)
            self.examples += differences[: MAX_EXAMPLES - len(self.examples)]

    def add_counts(self, compared: int, without_body: int) -> None:
        """Add numbers of messages that were compared."""
        with self._lock:
            self.compared += compared
            self.without_body += without_body

    @property
    def text(self) -> str:
        """The result as a text for users."""
        text = f"{format_count(self.compared, 'message')} read back from the target and compared with the lake"
        if self.without_body:
            text += f", {self.without_body:,} of them by size and checksum, because the lake does not have their bodies"
        if not self.problems:
            return f"{text}: no differences"
        counts = ", ".join(f"{problem} {count:,}" for problem, count in sorted(self.problems.items()))
        is_cut = self.problems.total() > len(self.examples)
        return f"{text}: {counts}" + (f"; the first {len(self.examples):,} are shown" if is_cut else "")


@dataclass(frozen=True, slots=True)
class _ExpectedMessages:
    """Messages that one part of the plan has sent to one queue, in the order of their offsets there.

    Attributes:
        offsets: int64, offsets in the target.
        numbers: int64, the places of the messages in the order of sending.
        rows: rows of `messages`.
        bodies: body of each row.
        has_body: bool, True if the lake still has the body.
    """

    offsets: Array
    numbers: Array
    rows: pa.Table
    bodies: pa.Array
    has_body: Array


class _QueueVerifier:
    """Reads one target queue, and compares its messages in order with those that were sent."""

    def __init__(self, puller: Puller, queue: MessageQueue, begin: int, replay_id: str, found: Verification) -> None:
        self.queue = queue
        self._puller, self._position, self._replay_id, self._found = puller, begin, replay_id, found
        self._records = PulledRecords(queue.broker_name, Request(_SCHEMA, mode=Mode.DROPMALFORMED))
        self._expired: list[tuple[int, int]] = []
        self._last_offset = -1  # of the parts before

    def compare_messages(self, expected: _ExpectedMessages) -> None:
        """Read the queue up to the last message of a part, and compare it with the messages sent."""
        is_seen = np.zeros(len(expected.offsets), np.bool_)
        self._check_order(expected)
        # Ranges that expired in earlier parts have been assigned to their messages.
        self._expired.clear()
        for batch in self._read_replay_messages(int(expected.offsets[-1]) + 1):
            offsets = batch.column("queue_offset").to_numpy()
            # An offset after all expected ones has no place; the last one then shows that it is not among them.
            places = np.minimum(np.searchsorted(expected.offsets, offsets), len(is_seen) - 1)
            is_known = expected.offsets[places] == offsets
            self._add_duplicates(batch.filter(pa.array(~is_known)))
            places = places[is_known]
            is_seen[places] = True
            self._compare_batch(expected, places, batch.filter(pa.array(is_known)))
        self._add_missing(expected, np.flatnonzero(~is_seen))

    def _check_order(self, expected: _ExpectedMessages) -> None:
        by_sending = np.argsort(expected.numbers, kind="stable")
        offsets = expected.offsets[by_sending]
        # The greatest offset of all messages sent before, also in earlier parts.
        before = np.maximum.accumulate(np.concatenate([[self._last_offset], offsets[:-1]]))
        wrong = by_sending[offsets < before]
        self._add_row_differences(SendFault.ORDER, expected.rows.take(pa.array(wrong)), expected.offsets[wrong])
        self._last_offset = max(self._last_offset, int(offsets.max()))

    def check_rest_of_queue(self) -> None:
        """Read the rest of the queue, and report messages of the replay there, as they were sent twice."""
        for batch in self._read_replay_messages(self._puller.max_offset(self.queue)):
            self._add_duplicates(batch)

    def _read_replay_messages(self, end_offset: int) -> Iterator[pa.RecordBatch]:
        """Yield the replay's messages in the queue from where the last call ended to before `end_offset`."""
        waiting: list[bytes] = []
        if end_offset <= self._position:
            return
        wanted = QueueRange(self.queue, self._position, end_offset)
        for answer in read_range(self._puller, wanted, self._note_expired):
            waiting.append(answer.body)
            if sum(map(len, waiting)) >= _ANSWERS_BYTES:
                yield from self._filter_replay_messages(waiting, end_offset)
                waiting = []
        yield from self._filter_replay_messages(waiting, end_offset)
        self._position = end_offset

    def _note_expired(self, lost_range: QueueRange, _reason: str) -> None:
        self._expired.append((lost_range.begin, lost_range.end))

    def _filter_replay_messages(self, answers: list[bytes], end_offset: int) -> Iterator[pa.RecordBatch]:
        for batch in self._records.decode_answers(answers):
            own = pc.equal(_property_values(batch, REPLAY_ID), self._replay_id)
            is_within = pc.less(batch.column("queue_offset"), end_offset)
            chosen = batch.filter(pc.fill_null(pc.and_(own, is_within), False))
            if chosen.num_rows:
                yield chosen

    def _compare_batch(self, expected: _ExpectedMessages, expected_indexes: Array, batch: pa.RecordBatch) -> None:
        if not len(expected_indexes):
            return
        chosen = pa.array(expected_indexes)
        rows, bodies = expected.rows.take(chosen), expected.bodies.take(chosen)
        has_body = pa.array(expected.has_body[expected_indexes])
        is_same_body = pc.equal(batch.column("body").cast(pa.large_binary()), bodies)
        is_same_sum = pc.and_(_equals_column(batch, rows, "body_crc"), _equals_column(batch, rows, "body_size"))
        # Only the bits of the codec, because brokers set other bits themselves.
        own_codec = pc.bit_wise_and(batch.column("sys_flag"), _CODEC_BITS)
        is_same_codec = pc.equal(own_codec, pc.bit_wise_and(_column_array(rows, "sys_flag"), _CODEC_BITS))
        wrong = {
            SendFault.BODY: ~np.asarray(pc.and_(pc.if_else(has_body, is_same_body, is_same_sum), is_same_codec)),
            SendFault.FLAG: ~np.asarray(_equals_column(batch, rows, "flag")),
            SendFault.PROPERTIES: _lacks_properties(batch, rows, self._replay_id),
        }
        for problem, is_wrong in wrong.items():
            numbers = np.flatnonzero(is_wrong)
            self._add_row_differences(
                problem, rows.take(pa.array(numbers)), expected.offsets[expected_indexes[numbers]]
            )
        self._found.add_counts(len(expected_indexes), int((~expected.has_body[expected_indexes]).sum()))

    def _add_missing(self, expected: _ExpectedMessages, missing_indexes: Array) -> None:
        offsets = expected.offsets[missing_indexes]
        is_expired = np.zeros(len(offsets), np.bool_)
        for begin, end in self._expired:
            is_expired |= (offsets >= begin) & (offsets < end)
        for problem, is_of in ((SendFault.EXPIRED, is_expired), (SendFault.MISSING, ~is_expired)):
            self._add_row_differences(problem, expected.rows.take(pa.array(missing_indexes[is_of])), offsets[is_of])

    def _add_row_differences(self, problem: SendFault, rows: pa.Table, offsets: Array) -> None:
        brokers, origins = rows.column("broker").to_pylist(), rows.column("physical_offset").to_pylist()
        self._add_differences(problem, brokers, origins, offsets)

    def _add_duplicates(self, batch: pa.RecordBatch) -> None:
        brokers = _property_values(batch, ORIGIN_BROKER).to_pylist()
        origins = _property_values(batch, ORIGIN_PHYSICAL_OFFSET).to_pylist()
        numbers = [parse_int64(text or "") for text in origins]
        self._add_differences(SendFault.TWICE, brokers, numbers, batch.column("queue_offset").to_numpy())

    def _add_differences(
        self, problem: SendFault, brokers: list[str | None], origins: list[int | None], offsets: Array
    ) -> None:
        queue = self.queue
        self._found.add_differences(
            [
                ReplayDifference(problem, queue.topic, queue.broker_name, queue.queue_id, offset, broker, origin)
                for broker, origin, offset in zip(brokers, origins, offsets.tolist(), strict=True)
            ]
        )


def verify_replay(
    lake: Lake, messages: PlannedMessages, puller: Puller, on_progress: Callable[[int], None] = lambda _: None
) -> Verification:
    """Compare the messages in the target with those that the replay has sent, and record the result.

    Args:
        messages: messages of the plan.
        on_progress: called with the number of messages of each part.

    Raises:
        RocketMQError: if the target cannot be read.
    """
    plan, ledger = messages.plan, Ledger(lake, messages.plan.replay_id)
    found = Verification()
    queues = {
        (queue.topic, queue.broker, queue.queue_id): _QueueVerifier(
            puller, MessageQueue(queue.topic, queue.broker, queue.queue_id), queue.offset, plan.replay_id, found
        )
        for queue in plan.target.queues
    }
    with ThreadPoolExecutor(min(_MAX_THREADS, len(queues))) as pool:
        # Parts one after another, because the messages of one fill the memory; queues side by side, because each waits
        # for its broker.
        for number, rows in enumerate(messages.read_parts()):
            expected = _expected_by_queue(rows, ledger.sent_offsets_of_part(number), messages, found)
            list(pool.map(lambda item: queues[item[0]].compare_messages(item[1]), expected.items()))
            on_progress(rows.num_rows)
        # Only now: a second copy may be behind the last message of the last part.
        list(pool.map(_QueueVerifier.check_rest_of_queue, queues.values()))
    add_replay_event(lake, plan.replay_id, ReplayEvent.VERIFIED, detail=found.text)
    return found


def _expected_by_queue(
    rows: pa.Table, sent_offsets: pa.Table, messages: PlannedMessages, verification: Verification
) -> Mapping[tuple[str, str, int], _ExpectedMessages]:
    """Return the messages that one part of the plan has sent to each queue."""
    numbers = rows.select(["broker", "physical_offset"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    known = sent_offsets.join(numbers, ["broker", "physical_offset"], join_type="left outer")
    is_gone = pc.is_null(known.column("row"))
    gone = known.filter(is_gone).select(_DIFFERENCE).to_pylist()
    verification.add_differences([ReplayDifference(SendFault.NOT_IN_LAKE, *row.values()) for row in gone])
    known = known.filter(pc.invert(is_gone)).sort_by([(name, "ascending") for name in (*_QUEUE, "target_offset")])
    if not known.num_rows:
        return {}
    sent_as = known.column("row").to_numpy()
    rows = rows.take(known.column("row"))
    bodies = messages.read_bodies_of_rows(rows)
    has_body = np.ones(rows.num_rows, np.bool_)
    has_body[list(bodies.errors)] = False
    offsets = known.column("target_offset").to_numpy()
    keys = list(zip(*(known.column(name).to_pylist() for name in _QUEUE), strict=True))
    starts = [row for row in range(len(keys)) if not row or keys[row] != keys[row - 1]]
    result = {}
    for start, end in zip(starts, [*starts[1:], len(keys)], strict=True):
        values = bodies.values.slice(start, end - start)
        result[keys[start]] = _ExpectedMessages(
            offsets[start:end], sent_as[start:end], rows.slice(start, end - start), values, has_body[start:end]
        )
    return result


def _lacks_properties(batch: pa.RecordBatch, rows: pa.Table, replay_id: str) -> Array:
    """Return a mask of the messages in the target that lack a property that was sent."""
    # With row numbers, entries of all rows can be compared at once.
    lengths, names, values = split_properties(batch.column("properties"))
    there = _prefix_row_numbers(np.repeat(np.arange(len(lengths)), lengths), _property_entries(names, values))
    lengths, names, values = split_properties(_column_array(rows, "properties"))
    is_sent = np.asarray(pc.invert(pc.is_in(names, value_set=DROPPED)))
    own = np.repeat(np.arange(len(lengths)), lengths)[is_sent]
    added = pc.split_pattern(added_properties(rows, replay_id), "\x02")
    is_entry = np.asarray(pc.not_equal(added.flatten(), ""))
    stamped = np.asarray(pc.list_parent_indices(added))[is_entry]
    numbers = np.concatenate([own, stamped])
    sent = pa.concat_arrays(
        [_property_entries(names, values).filter(pa.array(is_sent)), added.flatten().filter(pa.array(is_entry))]
    )
    is_there = np.asarray(pc.is_in(_prefix_row_numbers(numbers, sent), value_set=there))
    lacks = np.zeros(rows.num_rows, np.bool_)
    lacks[numbers[~is_there]] = True
    return lacks


def _property_entries(names: pa.Array, values: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(names, values, "\x01")


def _prefix_row_numbers(rows: Array, entries: pa.Array) -> pa.Array:
    """Prepend to each text the number of its row and a slash."""
    return pc.binary_join_element_wise(pa.array(rows).cast(pa.string()), entries, "/")


def _property_values(batch: pa.RecordBatch, name: str) -> pa.Array:
    entries = batch.column("properties")
    return pc.map_lookup(entries, pa.scalar(name, entries.type.key_type), "last").cast(pa.string())


def _column_array(rows: pa.Table, name: str) -> pa.Array:
    return rows.column(name).combine_chunks()


def _equals_column(batch: pa.RecordBatch, rows: pa.Table, name: str) -> pa.Array:
    return pc.fill_null(pc.equal(batch.column(name), _column_array(rows, name)), False)
