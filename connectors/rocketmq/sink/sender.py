"""Sending of rows with retries, in the order of each queue, and with a limited number of pending requests.

    with RowSender(ClientOptions("127.0.0.1:9876")) as sender:
        outcomes = sender.send(rows)        # a row for each row; see `outcomes` and `prepared_rows`

Rows with a target queue keep their order there: a request waits for the answer to the one before it, and if one fails
permanently, the following ones are skipped. Other rows are sent to the queues of their topic in rotation; a broker that
was slow or failed is avoided for a while.

A request whose answer is lost is settled before it is sent again, and before anything else is sent to its queue: the
sender closes the connection, waits until the broker has nothing left of it (see `tracked_connections`), searches the
queue for the ids of the rows, and sends only those that are not there. That needs the permissions to list connections
and to read the topic. Without them, and for messages with a delay, which are not in their queue yet, the request is
sent again, and its messages may be in the log twice; their outcome says so.

Refusals that other brokers might not give are retried at others a few times. If a broker refuses a message in a batch,
the batch is divided until that message is alone.
"""

from __future__ import annotations

import heapq
import itertools
import queue as queues
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.errors import (
    NoRouteError,
    ProtocolError,
    RefusedError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.log_extent import log_extent
from commitlake.connectors.rocketmq.network import Closable
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producers.producer import Producer, ProducerOptions
from commitlake.connectors.rocketmq.producers.sending import EncodedMessage, StoredResult
from commitlake.connectors.rocketmq.producers.tracked_connections import (
    NEVER_LISTED,
    TrackedConnection,
    TrackedConnections,
)
from commitlake.connectors.rocketmq.puller import Puller
from commitlake.connectors.rocketmq.queue_reading import format_queue
from commitlake.connectors.rocketmq.sink.outcomes import RowOutcomes, RowStatus
from commitlake.connectors.rocketmq.sink.prepared_rows import PreparedRows, RowSettings, RowTarget, prepare_rows
from commitlake.connectors.rocketmq.sink.request_batches import (
    BatchLimits,
    RowParcel,
    divide_into_requests,
    encode_request,
)
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.remoting.codes import BUSY, TRY_ANOTHER_BROKER
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.signing import Credentials

DEFAULT_GROUP = "commitlake_writer"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 5.0
MAX_REFUSALS = 3
"""Number of retries after a refusal that another broker might not give."""


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Settings for sending rows, such as the producer group, size limits and retries.

    Attributes:
        group: the producer group.
        rows: settings for all rows.
        limits: limits of one request.
        max_in_flight: maximum number of requests without an answer.
        answer_seconds: time limit for an answer.
        retry_seconds: time for which rows are retried, from the first attempt.
    """

    group: str = DEFAULT_GROUP
    rows: RowSettings = field(default_factory=RowSettings)
    limits: BatchLimits = field(default_factory=BatchLimits)
    max_in_flight: int = 8
    answer_seconds: float = 10.0
    retry_seconds: float = 60.0


class RowSender(Closable):
    """A sender of the rows of a DataFrame, which one thread uses at a time."""

    def __init__(
        self, options: ClientOptions, settings: SendSettings | None = None, credentials: Credentials | None = None
    ) -> None:
        """Create the sender without connecting.

        Args:
            options: addresses, time limits and other settings.
            settings: settings for sending rows.
            credentials: keys that sign requests; by default those in the environment.

        Raises:
            InvalidMessageError: if the group's name is not valid.
            ClientOptionError: if the keys, or the TLS settings, are not valid.
        """
        self._settings = settings or SendSettings()
        # One attempt only: whether a first one has stored the rows must be known before the next (see `in_doubt`).
        sending = ProducerOptions(send_seconds=self._settings.answer_seconds, tries=1)
        self.producer = Producer(self._settings.group, options, sending, credentials)
        self._admin = Admin(options, credentials)
        self._puller = Puller(self._settings.group, options, credentials)
        self._connections = TrackedConnections(self.producer, self._admin, uuid.uuid4().hex)
        self._ends: dict[MessageQueue, int | None] = {}

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        for client in (self._puller, self._admin, self.producer):
            client.close()

    def send(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Send rows, and wait until the outcome of each is known.

        Args:
            rows: columns as in `prepared_rows`.

        Returns:
            The outcome of each row, in their order, with the columns of `outcomes`.

        Raises:
            InvalidMessageError: if a required column is missing or has another type.
        """
        prepared = prepare_rows(rows, self._settings.rows, self.producer.new_message_ids)
        return _BatchSend(self, self._settings, prepared).send_all_rows()

    def start_request(
        self, encoded_request: EncodedMessage, queue: MessageQueue
    ) -> tuple[SendAttempt, Future[StoredResult]]:
        """Send a request to a queue once, over a tracked connection; return the attempt and its future answer.

        Raises:
            RocketMQError: if nothing was sent.
        """
        # Before the first request to a queue, so that a search for its messages begins early enough.
        if queue not in self._ends:
            try:
                self._ends[queue] = self._puller.max_offset(queue)
            except RefusedError:
                # Without permission to read the topic, no search is possible, and the request is sent again.
                self._ends[queue] = None
        attempt = SendAttempt(queue, self._ends[queue], self._connections.open(queue.broker_name))
        return attempt, self.producer.start_encoded_message(encoded_request, queue, attempt.connection.peer)

    def record_stored(self, stored: StoredResult, message_count: int) -> None:
        """Record the position of stored messages, so that later searches in the queue begin after them."""
        end = self._ends.get(stored.queue)
        if end is not None:
            self._ends[stored.queue] = max(end, stored.response.queue_offset + message_count)

    def find_messages(self, unique_keys: Collection[str], attempt: SendAttempt) -> list[Message] | None:
        """Search the queue for the messages of a request without an answer, and return those found, in order.

        Returns:
            None if that can never be known: the account may not list connections, or not read the topic.

        Raises:
            RocketMQError: if it is not known yet; call it again later.
        """
        queue, start = attempt.queue, attempt.start
        if start is None:
            return None
        try:
            self._connections.wait_for_earlier_connections(queue.broker_name, attempt.connection)
            # A message is in the log a moment before it is in its queue; this waits until the queues have caught up.
            log_extent(self._admin, queue.broker_name)
            end = self._puller.max_offset(queue)
            return [message for message in self._puller.read(queue, start, end) if message.unique_key in unique_keys]
        except RefusedError as error:
            if error.code in NEVER_LISTED:
                return None
            raise


class SendAttempt(NamedTuple):
    """A request that was sent to a broker: its queue, first possible offset and connection.

    Attributes:
        queue: its queue.
        start: offset of the queue before which its messages cannot be; None if it is not known.
        connection: its connection.
    """

    queue: MessageQueue
    start: int | None
    connection: TrackedConnection


@dataclass(eq=False, slots=True)
class _QueuedRequest:
    """A request of a batch, with the attempts to send it so far."""

    parcel: RowParcel
    lane: _TargetRequests
    attempts: int = 0
    refusals: int = 0
    began: float = 0.0
    last_broker: str | None = None
    may_be_there: bool = False
    in_doubt: SendAttempt | None = None


@dataclass(eq=False, slots=True)
class _TargetRequests:
    """Requests for one broker, topic and queue that were not sent yet."""

    target: RowTarget
    waiting: deque[_QueuedRequest]

    @property
    def queue(self) -> MessageQueue | None:
        """The queue in which the order of rows must be kept; None if any queue is allowed."""
        target = self.target
        if target.broker_name is None or target.queue_id is None:
            return None
        return MessageQueue(target.topic, target.broker_name, target.queue_id)


class _BatchSend:
    """The sending of one batch of rows."""

    def __init__(self, sender: RowSender, settings: SendSettings, rows: PreparedRows) -> None:
        self._sender = sender
        self._producer = sender.producer
        self._settings = settings
        self._rows = rows
        self._outcomes = RowOutcomes(rows)
        self._done: queues.SimpleQueue[tuple[_QueuedRequest, SendAttempt, Future[StoredResult]]] = queues.SimpleQueue()
        self._ready: list[tuple[float, int, _QueuedRequest]] = []
        self._turns = itertools.count()
        self._in_flight = 0

    def send_all_rows(self) -> pa.RecordBatch:
        for parcels in divide_into_requests(self._rows, self._settings.limits):
            lane = _TargetRequests(parcels[0].target, deque())
            lane.waiting.extend(_QueuedRequest(parcel, lane) for parcel in parcels)
            self._release_next_requests(lane)
        while self._ready or self._in_flight:
            wait_seconds = self._start_ready_requests()
            # Answers may make further requests ready, so the wait ends with the next of either.
            if self._in_flight:
                self._process_answer(wait_seconds)
            elif wait_seconds:
                time.sleep(wait_seconds)
        return self._outcomes.to_batch()

    def _release_next_requests(self, target_requests: _TargetRequests) -> None:
        """Make the next requests for a queue ready to start: one if the order must be kept, otherwise all."""
        while target_requests.waiting:
            self._schedule_request(target_requests.waiting.popleft(), 0.0)
            if target_requests.queue is not None:
                return

    def _schedule_request(self, request: _QueuedRequest, ready_at: float) -> None:
        # The number keeps the order of requests that are ready at the same time; requests cannot be compared.
        heapq.heappush(self._ready, (ready_at, next(self._turns), request))

    def _start_ready_requests(self) -> float | None:
        """Start the ready requests; return the seconds until the next one is ready, or None to wait for answers."""
        while self._ready and self._in_flight < self._settings.max_in_flight:
            left = self._ready[0][0] - time.monotonic()
            if left > 0:
                return left
            self._start_request(heapq.heappop(self._ready)[2])
        return None

    def _start_request(self, request: _QueuedRequest) -> None:
        request.began = request.began or time.monotonic()
        lane = request.lane
        try:
            if request.in_doubt is not None and not self._resolve_unanswered_request(request, request.in_doubt):
                return
            queue = self._choose_queue(lane, request.last_broker)
            request.last_broker = queue.broker_name
            attempt, answer = self._sender.start_request(encode_request(self._rows, request.parcel), queue)
        except RocketMQError as error:
            self._retry_or_give_up(request, error)
            return
        request.attempts += 1
        self._in_flight += 1
        # The thread that reads answers only passes them on; everything else stays in the thread of `send_all_rows`.
        answer.add_done_callback(lambda done: self._done.put((request, attempt, done)))

    def _resolve_unanswered_request(self, request: _QueuedRequest, attempt: SendAttempt) -> bool:
        """Look in the queue for rows of a request without an answer; return whether some must be sent again."""
        rows = request.parcel.rows
        ids = None if self._rows.has_delay(rows) else self._rows.unique_keys(rows)
        messages = None if ids is None else self._sender.find_messages(set(ids), attempt)
        # Only after a successful search: if it fails, the request stays in doubt and is searched for again.
        request.in_doubt = None
        if ids is None or messages is None:
            request.may_be_there = True
            return True
        # Several rows may have the same id: each accounts for one message.
        unused: defaultdict[str | None, deque[Message]] = defaultdict(deque)
        for message in messages:
            unused[message.unique_key].append(message)
        found = {place: unused[key].popleft() for place, key in enumerate(ids) if unused[key]}
        is_there = np.isin(np.arange(len(rows)), list(found))
        self._outcomes.add_found_rows(rows[is_there], attempt.queue, list(found.values()), request.attempts)
        request.parcel = RowParcel(request.parcel.target, rows[~is_there])
        if is_there.all():
            self._release_next_if_ordered(request.lane)
        return not is_there.all()

    def _choose_queue(self, target_requests: _TargetRequests, last_broker: str | None) -> MessageQueue:
        """Return the queue for a request: the one that its rows name or, if they name none, the next in rotation."""
        if target_requests.queue is None:
            return self._producer.choose_queue(target_requests.target.topic, last_broker)
        known = self._producer.queues(target_requests.target.topic)
        if target_requests.queue not in known:
            raise NoRouteError(
                f"{format_queue(target_requests.queue)}: expected one of the topic's {len(known)} queues that can be "
                "written to"
            )
        return target_requests.queue

    def _process_answer(self, wait_seconds: float | None) -> None:
        """Wait for an answer at most the given time, and process it."""
        try:
            work, attempt, answer = self._done.get(timeout=wait_seconds)
        except queues.Empty:
            return
        self._in_flight -= 1
        problem = answer.exception()
        if problem is None:
            self._sender.record_stored(answer.result(), len(work.parcel.rows))
            self._outcomes.add_sent_rows(
                work.parcel.rows, answer.result(), work.attempts, may_be_duplicated=work.may_be_there
            )
            self._release_next_if_ordered(work.lane)
            return
        # The request may have been executed, although no valid answer came.
        if isinstance(problem, UnreachableError | ProtocolError):
            work.in_doubt = attempt
        self._retry_or_give_up(work, problem)

    def _release_next_if_ordered(self, target_requests: _TargetRequests) -> None:
        if target_requests.queue is not None:
            self._release_next_requests(target_requests)

    def _retry_or_give_up(self, request: _QueuedRequest, problem: BaseException) -> None:
        """Schedule another attempt if that can help; otherwise record the rows as not sent."""
        if isinstance(problem, RefusedError) and problem.is_message_fault:
            self._split_refused_request(request, problem)
            return
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(request.attempts + request.refusals, 10), LONGEST_PAUSE_SECONDS)
        now = time.monotonic()
        if self._may_succeed_later(request, problem) and now + pause < request.began + self._settings.retry_seconds:
            # A busy broker is the right one; after other errors, the queue may have moved to another.
            if not isinstance(problem, RefusedError) or problem.code not in BUSY:
                self._producer.routing.forget_route(request.lane.target.topic)
            self._schedule_request(request, now + pause)
        else:
            self._give_up_request(request, problem, is_lost=request.may_be_there or request.in_doubt is not None)

    def _may_succeed_later(self, request: _QueuedRequest, problem: BaseException) -> bool:
        """Return True if the same request may succeed later, or at another broker."""
        if isinstance(problem, UnreachableError | ProtocolError):
            return True
        if isinstance(problem, RefusedError) and problem.code in BUSY:
            return True
        if isinstance(problem, NoRouteError) or (
            isinstance(problem, RefusedError) and problem.code in TRY_ANOTHER_BROKER
        ):
            request.refusals += 1
            return request.refusals <= MAX_REFUSALS
        return False

    def _split_refused_request(self, request: _QueuedRequest, problem: RefusedError) -> None:
        """Split a refused request in two, to find the message for which the broker refuses it."""
        if len(request.parcel.rows) == 1:
            self._outcomes.add_unsent_rows(
                request.parcel.rows,
                RowStatus.REFUSED,
                str(problem),
                request.attempts,
                may_be_duplicated=request.may_be_there,
            )
            self._release_next_if_ordered(request.lane)
            return
        lane = request.lane
        tried = request.attempts, request.refusals, request.began
        halves = [
            _QueuedRequest(half, lane, *tried, may_be_there=request.may_be_there)
            for half in request.parcel.split_in_half()
        ]
        # In reverse, because each is put before the one before: the first half stays the first.
        lane.waiting.extendleft(reversed(halves))
        self._release_next_requests(lane)

    def _give_up_request(self, request: _QueuedRequest, problem: BaseException, *, is_lost: bool) -> None:
        status = (
            RowStatus.IN_DOUBT if is_lost
            else RowStatus.REFUSED if isinstance(problem, RefusedError)
            else RowStatus.FAILED
        )  # fmt: skip
        self._outcomes.add_unsent_rows(request.parcel.rows, status, str(problem), request.attempts)
        if request.lane.queue is not None:
            for later in request.lane.waiting:
                text = "an earlier row of this queue could not be sent"
                self._outcomes.add_unsent_rows(later.parcel.rows, RowStatus.SKIPPED, text, later.attempts)
            request.lane.waiting.clear()
