"""State of a replay's messages in a consumer group: consumed, dead or waiting.

RocketMQ does not record the consumption of single messages. This module reads what brokers store:

    group's offset     next offset of the group in a queue. It passes messages that were consumed and messages that
                       failed; before it passes a failed one, a copy is stored as a retry or as a dead letter
    %RETRY%group       the copy for each retry, when it is due; the group consumes it from there
    SCHEDULE_TOPIC_XXXX    the same copy until then, in the queue of its delay level
    %DLQ%group         the copy of a message that failed too often

A copy has all properties of the failed message, so it has REPLAY_ID and ORIGIN_…, and `reconsume_times` counts the
failures. A message was therefore consumed if the offset has passed it, or its newest retry, and there is no newer copy.

Offsets are read before copies: if a message failed before an offset was read, its copy is in the log by then.

Limits: a group that broadcasts has no offsets at brokers. The offset of a group of POP consumers (RocketMQ 5's gRPC
clients) passes a message when it is handed out. An offset that somebody resets passes messages that nobody consumed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.rocketmq.errors import RefusedError
from commitlake.connectors.rocketmq.log_extent import log_extent
from commitlake.connectors.rocketmq.puller import PullStatus
from commitlake.pipelines.replay.plan import ReplayPlan
from commitlake.pipelines.replay.sending.queue_sender import TargetClient
from commitlake.pipelines.replay.sent_messages import Origin, find_sent_messages
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.properties import REAL_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import DLQ_PREFIX, POP_SEPARATORS, RETRY_PREFIX, SCHEDULE_TOPIC
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.statistics_bodies import TopicOffset
from commitlake.schemas.tables.replays import SendOutcome
from commitlake.schemas.times import epoch_ms

_COLUMNS = (
    "broker", "physical_offset", "msg_id", "topic", "outcome", "target_topic", "target_broker", "target_queue_id",
    "target_offset", "error",
)  # fmt: skip
_CLOCK_MARGIN_MS = 600_000
"""Largest difference between brokers' clocks; the search for copies starts this long before the first message."""
_PLAN_MARGIN_MS = 3_600_000
"""The same, if only the clock of the host that made the plan is known."""


class CopyState(IntEnum):
    """State of a replayed message in one consumer group, such as consumed, waiting or dead."""

    CONSUMED = 0
    DEAD = 1
    WAITING = 2
    LOST = 3
    NOT_SENT = 4

    @property
    def text(self) -> str:
        """The state as text for users."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True)
class GroupOutcomes:
    """States of a replay's messages in one consumer group.

    Attributes:
        group: the consumer group.
        rows: rows of `replay_messages`.
        states: int8, a `CopyState` for each row.
        ahead: int64, number of messages that the group has to consume before one that waits in its queue; -1 if not
            known.
        details: by row, details beyond the state.
        retries: by row, the number of retries of a message that failed.
        cautions: sentences on data that could not be read, so that a state may be wrong.
    """

    group: str
    rows: pa.Table
    states: Array
    ahead: Array
    details: Mapping[int, str]
    retries: Mapping[int, int]
    cautions: Sequence[str]

    def count(self, state: CopyState) -> int:
        """Return the number of messages in the given state."""
        return int(np.count_nonzero(self.states == state))

    def describe_state(self, row_number: int) -> str:
        """Return details on the state of a message, as text for users."""
        if row_number in self.details or self.states[row_number] != CopyState.WAITING:
            return self.details.get(row_number, "")
        if self.ahead[row_number] < 0:
            return "the group has no offset in its queue"
        return f"{format_count(self.ahead[row_number], 'message')} before it in its queue"


def read_replay_rows(lake: Lake, replay_id: str) -> pa.Table:
    """Return the rows of `replay_messages` for a replay: messages that were sent, and those that could not be."""
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in _COLUMNS])
    table = lake.find("replay_messages")
    if table is None:
        return schema.empty_table()
    sql = f"SELECT {', '.join(_COLUMNS)} FROM t WHERE replay_id = {text_literal(replay_id)}"
    return run_sql(table, "t", sql).read_all().cast(schema)


_TYPES = {"physical_offset": pa.int64(), "target_queue_id": pa.int32(), "target_offset": pa.int64()}


def rows_by_dead_letter_group(rows: pa.Table) -> dict[str, pa.Table]:
    """Group the rows of replayed dead letters by the consumer group that had given them up."""
    topics = rows.column("topic").unique().to_pylist()
    return {
        topic.removeprefix(DLQ_PREFIX): rows.filter(pc.equal(rows.column("topic"), topic))
        for topic in sorted(topic for topic in topics if topic.startswith(DLQ_PREFIX))
    }


@dataclass
class _RetryCopies:
    """Retry copies and dead letter of one message, as found so far.

    Attributes:
        scheduled: the largest number of failures of a copy that waits, or waited, for its delay.
        retried: number of failures of the copy in a retry topic; 0 if there is none.
        retry_queue: queue of that copy.
        retry_offset: queue offset of that copy.
        dead_offset: queue offset of the dead letter; None if there is none.
    """

    scheduled: int = 0
    retried: int = 0
    retry_queue: MessageQueue | None = None
    retry_offset: int = 0
    dead_offset: int | None = None


@dataclass
class GroupFollower:
    """Reads the states of a replay's messages in one consumer group, again and again.

    Attributes:
        client: client of the target.
        plan: plan of the replay.
        group: the consumer group.
        rows: rows of `replay_messages`, from `read_replay_rows`.
    """

    client: TargetClient
    plan: ReplayPlan
    group: str
    rows: pa.Table
    _copies: dict[Origin, _RetryCopies] = field(default_factory=dict, init=False)
    _next: dict[MessageQueue, int] = field(default_factory=dict, init=False)
    _cautions: dict[str, None] = field(default_factory=dict, init=False)
    _since_ms: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        outcomes = self.rows.column("outcome")
        self._is_sent = np.asarray(pc.is_in(outcomes, pa.array([SendOutcome.SENT, SendOutcome.FOUND], pa.string())))
        self._queues, self._codes = _target_queues(self.rows)
        self._offsets: Array = self.rows.column("target_offset").fill_null(-1).to_numpy()
        self._places = _RowNumbers(self.rows)

    def read_outcomes(self) -> GroupOutcomes:
        """Read the current states of the messages from the brokers.

        Raises:
            ReplayError: if a topic was deleted and created again.
        """
        admin = self.client.admin
        brokers = sorted(admin.clusters().broker_addr_table)
        topics = self._retry_topics()
        retry_queues = [queue for topic in topics for broker in brokers for queue in self._topic_stats(topic, broker)]
        committed = {queue: admin.offsets.committed(queue, self.group) for queue in {*self._queues, *retry_queues}}
        self._note_delivery_offsets(brokers)
        # A copy is in the log a moment before it is in its queue.
        for broker in brokers:
            log_extent(admin, broker)
        for broker in brokers:
            self._read_copies(broker, topics)
        return self._current_outcomes(committed)

    def _retry_topics(self) -> list[str]:
        """Return the names of topics with retries of the group: its own, and for POP one for each topic."""
        names = sorted({queue.topic for queue in self._queues})
        pop = [f"{RETRY_PREFIX}{self.group}{separator}{name}" for name in names for separator in POP_SEPARATORS]
        return [f"{RETRY_PREFIX}{self.group}", *pop]

    def _topic_stats(self, topic: str, broker: str) -> Mapping[MessageQueue, TopicOffset]:
        try:
            found = self.client.admin.broker_topic_stats(topic, broker)
        except RefusedError as error:
            self._cautions[f"{topic} on {broker} cannot be read: {error}"] = None
            return {}
        return {} if found is None else found.offset_table

    def _note_delivery_offsets(self, brokers: Sequence[str]) -> None:
        """Store each delay queue's delivery offset as the first offset to read from, unless one is stored already."""
        for broker in brokers:
            delivered = self.client.admin.delay_offsets(broker).offset_table
            for level, offset in delivered.items():
                self._next.setdefault(MessageQueue(SCHEDULE_TOPIC, broker, level - 1), offset)

    def _read_copies(self, broker: str, retry_topics: Sequence[str]) -> None:
        for queue, ends in self._topic_stats(SCHEDULE_TOPIC, broker).items():
            for origin, message in self._read_new_messages(queue, ends, self._next.setdefault(queue, ends.min_offset)):
                if message.properties.get(REAL_TOPIC) in retry_topics:
                    copies = self._copies.setdefault(origin, _RetryCopies())
                    copies.scheduled = max(copies.scheduled, message.reconsume_times)
        for topic in retry_topics:
            for queue, ends in self._topic_stats(topic, broker).items():
                for origin, message in self._read_new_messages(queue, ends, self._search_start(queue, ends)):
                    copies = self._copies.setdefault(origin, _RetryCopies())
                    # The newest retry decides. Equal counts are the same retry, stored again.
                    if message.reconsume_times >= copies.retried:
                        copies.retried = message.reconsume_times
                        copies.retry_queue, copies.retry_offset = queue, message.queue_offset
        for queue, ends in self._topic_stats(f"{DLQ_PREFIX}{self.group}", broker).items():
            for origin, message in self._read_new_messages(queue, ends, self._search_start(queue, ends)):
                self._copies.setdefault(origin, _RetryCopies()).dead_offset = message.queue_offset

    def _read_new_messages(
        self, queue: MessageQueue, queue_bounds: TopicOffset, start: int
    ) -> Iterator[tuple[Origin, Message]]:
        """Yield a queue's messages of the replay from `start` on, and keep the queue's end for the next call."""
        if queue_bounds.min_offset > start:
            self._cautions[
                f"{queue.topic} on {queue.broker_name} now starts at {queue_bounds.min_offset}: messages from {start} "
                "to there were deleted before they were read"
            ] = None
            start = queue_bounds.min_offset
        if start < queue_bounds.max_offset:
            yield from find_sent_messages(self.client.puller, queue, start, self.plan.replay_id)
        self._next[queue] = queue_bounds.max_offset

    def _search_start(self, queue: MessageQueue, queue_bounds: TopicOffset) -> int:
        """Return the first offset of a queue at which there may be retries or dead letters of the replay's messages."""
        if queue in self._next or not queue_bounds.max_offset:
            return self._next.get(queue, 0)
        if self._since_ms is None:
            self._since_ms = self._first_store_time_ms() - _CLOCK_MARGIN_MS
        offsets = self.client.admin.offsets
        first_ms = offsets.earliest_store_time_ms(queue) if queue_bounds.min_offset else None
        if first_ms is not None and first_ms > self._since_ms:
            return 0  # older messages were deleted, and copies may have been among them
        return min(offsets.search_by_time(queue, self._since_ms), queue_bounds.max_offset)

    def _first_store_time_ms(self) -> int:
        """Return the store time of the replay's first message, as its broker recorded it."""
        found = []
        for code, queue in enumerate(self._queues):
            own = self._offsets[self._is_sent & (self._codes == code)]
            result = self.client.puller.pull(queue, int(own.min()), max_messages=1)
            if result.status is PullStatus.FOUND and result.messages:
                found.append(result.messages[0].store_timestamp)
        return min(found, default=epoch_ms(self.plan.created_at) - _PLAN_MARGIN_MS)

    def _current_outcomes(self, committed_offsets: Mapping[MessageQueue, int | None]) -> GroupOutcomes:
        states = np.full(self.rows.num_rows, CopyState.WAITING, np.int8)
        ahead = np.full(self.rows.num_rows, -1, np.int64)
        details: dict[int, str] = {}
        retries: dict[int, int] = {}
        for code, queue in enumerate(self._queues):
            offset = committed_offsets[queue]
            is_here = self._is_sent & (self._codes == code)
            if offset is not None:
                states[is_here & (self._offsets < offset)] = CopyState.CONSUMED
                ahead[is_here] = np.maximum(self._offsets[is_here] - offset, 0)
            self._mark_lost_messages(queue, is_here & (states == CopyState.WAITING), states, details)
        for origin, copies in self._copies.items():
            row = self._places.find_row(origin)
            if row is not None:
                states[row], details[row] = _state_of_copies(copies, committed_offsets, self.group)
                retries[row] = max(copies.scheduled, copies.retried)
        errors = self.rows.column("error")
        for row in np.flatnonzero(~self._is_sent).tolist():
            states[row], details[row] = CopyState.NOT_SENT, errors[row].as_py() or ""
        return GroupOutcomes(self.group, self.rows, states, ahead, details, retries, tuple(self._cautions))

    def _mark_lost_messages(
        self, queue: MessageQueue, is_waiting: Array, states: Array, details: dict[int, str]
    ) -> None:
        """Set the state of waiting messages that are no longer in their queue."""
        if not is_waiting.any():
            return
        # A queue without offsets is gone with its topic; all its messages count as missing.
        ends = self._topic_stats(queue.topic, queue.broker_name).get(queue, TopicOffset(0, 0))
        is_deleted = is_waiting & (self._offsets < ends.min_offset)
        is_missing = is_waiting & (self._offsets >= ends.max_offset)
        states[is_deleted | is_missing] = CopyState.LOST
        where = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
        details.update(dict.fromkeys(np.flatnonzero(is_deleted).tolist(), f"{where} now starts at {ends.min_offset}"))
        details.update(dict.fromkeys(np.flatnonzero(is_missing).tolist(), f"{where} now ends at {ends.max_offset}"))


class _RowNumbers:
    """Index that finds the row of a replayed message by the store and physical offset of its original."""

    def __init__(self, rows: pa.Table) -> None:
        brokers = rows.column("broker").combine_chunks().dictionary_encode()
        self._codes = {name: code for code, name in enumerate(brokers.dictionary.to_pylist())}
        codes = np.asarray(brokers.indices).astype(np.int64)
        offsets: Array = rows.column("physical_offset").to_numpy()
        order = np.lexsort((offsets, codes))
        starts = np.searchsorted(codes[order], np.arange(len(self._codes) + 1))
        self._order = [order[starts[code] : starts[code + 1]] for code in range(len(self._codes))]
        self._offsets = [offsets[part] for part in self._order]

    def find_row(self, origin: Origin) -> int | None:
        """Return the row number of the message with an origin; None if there is none."""
        code = self._codes.get(origin.broker)
        if code is None:
            return None
        place = int(np.searchsorted(self._offsets[code], origin.physical_offset))
        if place == len(self._offsets[code]) or self._offsets[code][place] != origin.physical_offset:
            return None
        return int(self._order[code][place])


def _target_queues(rows: pa.Table) -> tuple[list[MessageQueue], Array]:
    """Return the queues to which the replay sent, and for each row the index of its queue; -1 if it was not sent."""
    names = ("target_topic", "target_broker", "target_queue_id")
    found: dict[MessageQueue, int] = {}
    texts = [rows.column(name).cast(pa.string()).fill_null("").combine_chunks() for name in names]
    coded = pc.binary_join_element_wise(*texts, "\x01").dictionary_encode()
    indices = np.asarray(coded.indices).astype(np.int64)
    is_there = np.asarray(pc.is_valid(rows.column("target_offset")))
    codes = np.full(rows.num_rows, -1)
    for index in np.unique(indices[is_there]).tolist():
        chosen = is_there & (indices == index)
        row = int(np.flatnonzero(chosen)[0])
        queue = MessageQueue(*(rows.column(name)[row].as_py() for name in names))
        codes[chosen] = found.setdefault(queue, len(found))
    return list(found), codes


def _state_of_copies(
    copies: _RetryCopies, committed_offsets: Mapping[MessageQueue, int | None], group: str
) -> tuple[CopyState, str]:
    """Return the state of a message whose consumption failed, from its retries and dead letter."""
    if copies.dead_offset is not None:
        return CopyState.DEAD, f"offset {copies.dead_offset} of {DLQ_PREFIX}{group}"
    # The newest copy is still in the delay queue, so an older retry says nothing.
    if copies.scheduled > copies.retried or copies.retry_queue is None:
        return CopyState.WAITING, f"retry {copies.scheduled} waits for its delay"
    topic = copies.retry_queue.topic
    if copies.retry_offset < (committed_offsets.get(copies.retry_queue) or 0):
        return CopyState.CONSUMED, f"retry {copies.retried}"
    return CopyState.WAITING, f"retry {copies.retried} is in {topic}"
