"""Sending of rows with a bounded number of requests, retries, and the order of each queue.

    with RowSender(ClientOptions("127.0.0.1:9876")) as sender:
        outcomes = sender.send(rows)        # a row for each row; see `outcomes` and `prepared_rows`

Rows with a target queue keep their order there: a request waits for the answer to the one before it, and if one fails
permanently, the following ones are skipped. Other rows are sent to the queues of their topic in rotation; a broker that
was slow or failed is avoided for a while.

Delivery is at least once: a request whose answer is lost is sent again, unless the settings disable that, and its
messages may be in the log twice; their outcome says so. Refusals that other brokers might not give are retried at
others a few times. If a broker refuses a message in a batch, the batch is divided until that message is alone.
"""

from __future__ import annotations

import heapq
import itertools
import queue as queues
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

import pyarrow as pa

from commitlake.connectors.rocketmq.closable import Closable
from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError, RefusedError, UnreachableError
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producer import Producer, ProducerOptions
from commitlake.connectors.rocketmq.queue_reading import queue_text
from commitlake.connectors.rocketmq.sending import Stored
from commitlake.connectors.rocketmq.sink.outcomes import Outcomes, RowStatus
from commitlake.connectors.rocketmq.sink.parcels import BatchLimits, RowParcel, divide, to_parcel
from commitlake.connectors.rocketmq.sink.prepared_rows import PreparedRows, RowSettings, Target, prepare
from commitlake.schemas.remoting.codes import BUSY, TRY_ANOTHER_BROKER
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.signing import Credentials

DEFAULT_GROUP = "commitlake_writer"
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 5.0
MAX_REFUSALS = 3
"""Number of retries after a refusal that another broker might not give."""


@dataclass(frozen=True, slots=True)
class SendSettings:
    """Settings for sending rows.

    Attributes:
        group: the producer group.
        rows: settings for all rows.
        limits: limits of one request.
        max_in_flight: maximum number of requests without an answer.
        answer_seconds: time limit for an answer.
        retry_seconds: time for which rows are retried, from the first attempt.
        resend_in_doubt: whether rows whose request may have been executed are sent again.
    """

    group: str = DEFAULT_GROUP
    rows: RowSettings = field(default_factory=RowSettings)
    limits: BatchLimits = field(default_factory=BatchLimits)
    max_in_flight: int = 8
    answer_seconds: float = 10.0
    retry_seconds: float = 60.0
    resend_in_doubt: bool = True


class RowSender(Closable):
    """A sender of rows, used by one thread at a time; see the module's docstring."""

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
        sending = ProducerOptions(send_seconds=self._settings.answer_seconds, tries=1)
        self._producer = Producer(self._settings.group, options, sending, credentials)

    def close(self) -> None:
        """Close all connections."""
        self._producer.close()

    def send(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Send rows, and wait until the outcome of each is known.

        Args:
            rows: columns as in `prepared_rows`.

        Returns:
            The outcome of each row, in their order, with the columns of `outcomes`.

        Raises:
            InvalidMessageError: if a required column is missing or has another type.
        """
        prepared = prepare(rows, self._settings.rows, self._producer.new_keys)
        return _Run(self._producer, self._settings, prepared).run()


@dataclass(eq=False, slots=True)
class _Work:
    """A request and its state."""

    parcel: RowParcel
    lane: _Lane
    attempts: int = 0
    refusals: int = 0
    began: float = 0.0
    last_broker: str | None = None
    may_be_there: bool = False


@dataclass(eq=False, slots=True)
class _Lane:
    """The requests of one target that have not started."""

    target: Target
    waiting: deque[_Work]

    @property
    def queue(self) -> MessageQueue | None:
        """Return the queue whose order must be kept; None for any queue."""
        target = self.target
        if target.broker_name is None or target.queue_id is None:
            return None
        return MessageQueue(target.topic, target.broker_name, target.queue_id)


class _Run:
    """The requests of one batch of rows, while they are being sent."""

    def __init__(self, producer: Producer, settings: SendSettings, rows: PreparedRows) -> None:
        self._producer = producer
        self._settings = settings
        self._rows = rows
        self._outcomes = Outcomes(rows)
        self._done: queues.SimpleQueue[tuple[_Work, Future[Stored]]] = queues.SimpleQueue()
        self._ready: list[tuple[float, int, _Work]] = []
        self._turns = itertools.count()
        self._in_flight = 0

    def run(self) -> pa.RecordBatch:
        for parcels in divide(self._rows, self._settings.limits):
            lane = _Lane(parcels[0].target, deque())
            lane.waiting.extend(_Work(parcel, lane) for parcel in parcels)
            self._open(lane)
        while self._ready or self._in_flight:
            wait_seconds = self._start_ready()
            if self._in_flight:
                self._take(wait_seconds)
            elif wait_seconds:
                time.sleep(wait_seconds)
        return self._outcomes.to_batch()

    def _open(self, lane: _Lane) -> None:
        """Make the next requests of a target ready: one if the order must be kept, otherwise all."""
        while lane.waiting:
            self._put(lane.waiting.popleft(), 0.0)
            if lane.queue is not None:
                return

    def _put(self, work: _Work, at: float) -> None:
        heapq.heappush(self._ready, (at, next(self._turns), work))

    def _start_ready(self) -> float | None:
        """Start the ready requests, and return the time until the next one is ready; None to wait for answers first."""
        while self._ready and self._in_flight < self._settings.max_in_flight:
            left = self._ready[0][0] - time.monotonic()
            if left > 0:
                return left
            self._start(heapq.heappop(self._ready)[2])
        return None

    def _start(self, work: _Work) -> None:
        work.began = work.began or time.monotonic()
        lane = work.lane
        try:
            queue = self._queue(lane, work.last_broker)
        except (UnreachableError, NoRouteError, RefusedError, ProtocolError) as error:
            self._failed(work, error, was_sent=False)
            return
        work.last_broker = queue.broker_name
        work.attempts += 1
        self._in_flight += 1
        answer = self._producer.start_parcel(to_parcel(self._rows, work.parcel), queue)
        answer.add_done_callback(lambda done: self._done.put((work, done)))

    def _queue(self, lane: _Lane, last_broker: str | None) -> MessageQueue:
        """Return the queue of a request.

        Raises:
            NoRouteError: if there is no such queue, or it cannot be written.
            UnreachableError: if no name server answers.
        """
        if lane.queue is None:
            return self._producer.choose_queue(lane.target.topic, last_broker)
        known = self._producer.queues(lane.target.topic)
        if lane.queue not in known:
            raise NoRouteError(
                f"{queue_text(lane.queue)}: expected a queue that can be written, of which there are {len(known)}"
            )
        return lane.queue

    def _take(self, wait_seconds: float | None) -> None:
        """Process an answer, if one arrives in time."""
        try:
            work, answer = self._done.get(timeout=wait_seconds)
        except queues.Empty:
            return
        self._in_flight -= 1
        problem = answer.exception()
        if problem is None:
            self._outcomes.sent(work.parcel.rows, answer.result(), work.attempts, may_be_twice=work.may_be_there)
            self._next(work.lane)
            return
        self._failed(work, problem, was_sent=True)

    def _next(self, lane: _Lane) -> None:
        if lane.queue is not None:
            self._open(lane)

    def _failed(self, work: _Work, problem: BaseException, *, was_sent: bool) -> None:
        """Send rows again if that can help; otherwise, record that they are not sent."""
        is_lost = was_sent and isinstance(problem, UnreachableError | ProtocolError)
        if isinstance(problem, RefusedError) and problem.is_of_the_message:
            self._divide(work, problem)
            return
        if is_lost and not self._settings.resend_in_doubt:
            self._give_up(work, problem, is_lost=True)
            return
        work.may_be_there |= is_lost
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(work.attempts + work.refusals, 10), LONGEST_PAUSE_SECONDS)
        now = time.monotonic()
        if self._may_help(work, problem) and now + pause < work.began + self._settings.retry_seconds:
            if not isinstance(problem, RefusedError) or problem.code not in BUSY:
                self._producer.routing.forget(work.lane.target.topic)
            self._put(work, now + pause)
        else:
            self._give_up(work, problem, is_lost=work.may_be_there)

    def _may_help(self, work: _Work, problem: BaseException) -> bool:
        """Return True if the same request may succeed later, or at another broker."""
        if isinstance(problem, UnreachableError | ProtocolError):
            return True
        if isinstance(problem, RefusedError) and problem.code in BUSY:
            return True
        if isinstance(problem, NoRouteError) or (
            isinstance(problem, RefusedError) and problem.code in TRY_ANOTHER_BROKER
        ):
            work.refusals += 1
            return work.refusals <= MAX_REFUSALS
        return False

    def _divide(self, work: _Work, problem: RefusedError) -> None:
        """Split a request to find the message that the broker refuses."""
        if len(work.parcel.rows) == 1:
            self._outcomes.not_sent(
                work.parcel.rows, RowStatus.REFUSED, str(problem), work.attempts, may_be_twice=work.may_be_there
            )
            self._next(work.lane)
            return
        lane = work.lane
        halves = [_Work(half, lane, work.attempts, work.refusals, work.began, may_be_there=work.may_be_there)
                  for half in work.parcel.halves()]  # fmt: skip
        lane.waiting.extendleft(reversed(halves))
        self._open(lane)

    def _give_up(self, work: _Work, problem: BaseException, *, is_lost: bool) -> None:
        status = (
            RowStatus.IN_DOUBT if is_lost
            else RowStatus.REFUSED if isinstance(problem, RefusedError)
            else RowStatus.FAILED
        )  # fmt: skip
        self._outcomes.not_sent(work.parcel.rows, status, str(problem), work.attempts)
        if work.lane.queue is not None:
            for later in work.lane.waiting:
                text = "an earlier row of this queue could not be sent"
                self._outcomes.not_sent(later.parcel.rows, RowStatus.SKIPPED, text, later.attempts)
            work.lane.waiting.clear()
