"""The steps of a send, from its first attempt to its result.

    try: choose a queue, of another broker than in the last attempt → send → wait
    └── stored: done; permanently refused: done; else: next attempt, while attempts and time are left

The calling thread sends the first attempt. The thread that reads the answer continues; further attempts are made by the
client's own threads, because they may have to connect or to request routes. A retried message may be in the log twice,
with the same UNIQ_KEY. A broker is avoided for longer, the longer its answer took, unless there is no other. Source:
DefaultMQProducerImpl, MQClientAPIImpl, MQFaultStrategy, LatencyFaultToleranceImpl (5.5.0).
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

from commitlake.connectors.rocketmq.connection import PeerConnection
from commitlake.connectors.rocketmq.errors import (
    InvalidMessageError,
    NoRouteError,
    PositionError,
    ProtocolError,
    RefusedError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.network import Network, PeerAnswer
from commitlake.connectors.rocketmq.routing import DEFAULT_TOPIC_QUEUES, Routing
from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.rocketmq.topics import AUTO_CREATE_TOPIC
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.codes import STORED, TRY_ANOTHER_BROKER, RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import SendMessageRequest, SendMessageResponse
from commitlake.schemas.remoting.routes import MessageQueue

LATENCY_MAX_MS = (50, 100, 550, 1800, 3000, 5000, 15000)
NOT_AVAILABLE_MS = (0, 0, 2000, 5000, 6000, 10000, 30000)
"""Time of avoidance for a latency of at least the value at the same index in LATENCY_MAX_MS."""
FAILED_LATENCY_MS = 10_000
"""Latency that is assumed for a broker that failed."""


def avoidance_ms(latency_ms: float) -> int:
    """Return for how long a broker is avoided after it has answered with this latency, in ms."""
    for latency, duration in zip(reversed(LATENCY_MAX_MS), reversed(NOT_AVAILABLE_MS), strict=True):
        if latency_ms >= latency:
            return duration
    return 0


class BrokerFaults:
    """The recent failures and latencies of brokers; thread-safe. Times are in ms on the caller's clock."""

    def __init__(self) -> None:
        self._available_from: dict[str, float] = {}
        self._lock = threading.Lock()

    def record_answer(self, broker_name: str, latency_ms: float, now_ms: float, *, has_failed: bool = False) -> None:
        """Record an answer's latency, or a failure."""
        duration = avoidance_ms(FAILED_LATENCY_MS if has_failed else latency_ms)
        with self._lock:
            if duration:
                self._available_from[broker_name] = now_ms + duration
            else:
                self._available_from.pop(broker_name, None)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Return True if the broker may be chosen."""
        # Without the lock: a look-up is a single step, and an outdated answer costs one slow send at most.
        return self._available_from.get(broker_name, 0) <= now_ms


def choose_queue(
    queues: Sequence[MessageQueue],
    turn: int,
    last_broker: str | None,
    broker_faults: BrokerFaults | None,
    now_ms: float,
) -> MessageQueue:
    """Return the next queue in rotation, if possible at an available broker other than the last attempt's.

    Args:
        queues: the queues, at least one.
        turn: counter of choices.
        last_broker: broker of the last attempt.
        broker_faults: known latencies of brokers; None to ignore them.
        now_ms: current time on the clock of `broker_faults`.
    """
    count = len(queues)
    first = queues[turn % count]
    if _is_preferred_queue(first, last_broker, broker_faults, now_ms):
        return first
    others = [queues[(turn + step) % count] for step in range(count)]
    for queue in others:
        if _is_preferred_queue(queue, last_broker, broker_faults, now_ms):
            return queue
    # All others are avoided, too: rather one of them than the broker that has just failed.
    return next((queue for queue in others if queue.broker_name != last_broker), first)


def _is_preferred_queue(
    queue: MessageQueue, last_broker: str | None, broker_faults: BrokerFaults | None, now_ms: float
) -> bool:
    name = queue.broker_name
    return name != last_broker and (broker_faults is None or broker_faults.is_available(name, now_ms))


class EncodedMessage(NamedTuple):
    """Encoded message or batch of messages, ready to be sent.

    Attributes:
        topic: topic to send to.
        body: body in the form that is sent.
        properties: properties in their stored form.
        unique_keys: one for each message.
    """

    topic: str
    body: bytes
    properties: str
    unique_keys: tuple[str, ...]
    sys_flag: int = 0
    flag: int = 0
    is_batch: bool = False


class StoredResult(NamedTuple):
    """Queue and broker's response of a message or batch that is now in the log."""

    parcel: EncodedMessage
    queue: MessageQueue
    code: ResponseCode
    response: SendMessageResponse


class SendState:
    """State that all sends of a producer share, such as the known failures of brokers; thread-safe.

    Attributes:
        faults: known latencies and failures of brokers.
    """

    def __init__(self, group: str, network: Network, routing: Routing, *, avoid_slow_brokers: bool) -> None:
        self.group = group
        self.network = network
        self.routing = routing
        self.faults = BrokerFaults() if avoid_slow_brokers else None
        self._turns = itertools.count(random.randrange(1 << 16))  # noqa: S311 (many producers, not in step)

    def choose_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """Return the queue for the next message of a topic.

        Raises:
            NoRouteError: if there is no queue.
            UnreachableError: if no name server answers.
        """
        queues = self.routing.queues_to_publish(topic)
        return choose_queue(queues, next(self._turns), last_broker, self.faults, _now_ms())

    def make_request(self, encoded_message: EncodedMessage, queue: MessageQueue) -> tuple[str, int, dict[str, str]]:
        """Return the address, request code and ext fields for sending an encoded message or batch.

        Raises:
            NoRouteError: if the queue's broker has no master.
        """
        header = SendMessageRequest(
            self.group,
            encoded_message.topic,
            AUTO_CREATE_TOPIC,
            DEFAULT_TOPIC_QUEUES,
            queue.queue_id,
            encoded_message.sys_flag,
            time.time_ns() // 1_000_000,
            encoded_message.flag,
            encoded_message.properties,
            reconsume_times=0,
            batch=encoded_message.is_batch,
            broker_name=queue.broker_name,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if encoded_message.is_batch else RequestCode.SEND_MESSAGE_V2
        return self.routing.master_address(queue.broker_name), code, to_ext_fields(header, has_one_letter_names=True)

    def record_answer(self, queue: MessageQueue, start_ms: float, *, has_failed: bool = False) -> None:
        """Record the latency of a broker's answer, or a failure."""
        if self.faults is not None:
            now = _now_ms()
            self.faults.record_answer(queue.broker_name, now - start_ms, now, has_failed=has_failed)


class SendOperation:
    """The sending of one message or batch, with its retries.

    Attributes:
        result: future of the result.
    """

    def __init__(
        self,
        outbox: SendState,
        encoded: EncodedMessage,
        *,
        queue: MessageQueue | None,
        seconds: float,
        tries: int,
        connection: PeerConnection | None = None,
    ) -> None:
        """Prepare a send; nothing is sent yet.

        Args:
            outbox: outbox of the producer.
            encoded: the encoded message or batch.
            queue: the only queue to send to; None for any queue of the topic.
            seconds: time limit for all attempts together.
            tries: maximum number of attempts.
            connection: the connection to use, if there is only one queue; by default, the producer's own.
        """
        self.result: Future[StoredResult] = Future()
        self.result.set_running_or_notify_cancel()  # a sent request cannot be cancelled
        self._outbox = outbox
        self._parcel = encoded
        self._only_queue = queue
        self._over = connection
        self._queue: MessageQueue | None = None
        self._deadline = time.monotonic() + seconds
        self._seconds = seconds
        # As in Java's client, a queue that the application has chosen is tried once: another queue is no alternative.
        self._tries_left = 1 if queue is not None else tries
        self._began_ms = 0.0

    def start(self) -> None:
        """Start the first attempt; if it fails at once, start the next ones until one is under way."""
        problem: RocketMQError | None = None
        while self._tries_left > 0:
            left = self._deadline - time.monotonic()
            if left <= 0:
                break
            self._tries_left -= 1
            try:
                self._send_attempt(left)
            except (UnreachableError, NoRouteError) as error:
                problem = error
                self._avoid_broker(error)
            except RocketMQError as error:
                self.result.set_exception(error)
                return
            except UnserializableError as error:
                self.result.set_exception(InvalidMessageError(f"topic {self._parcel.topic}: {error}"))
                return
            else:
                return
        self.result.set_exception(problem or self._timeout_error())

    def _send_attempt(self, timeout_seconds: float) -> None:
        outbox = self._outbox
        last_broker = self._queue.broker_name if self._queue is not None else None
        queue = self._only_queue or outbox.choose_queue(self._parcel.topic, last_broker)
        self._queue = queue
        self._began_ms = _now_ms()
        address, code, fields = outbox.make_request(self._parcel, queue)
        body = self._parcel.body
        answer = outbox.network.send_request(
            address, code, None, body, fields=fields, timeout_seconds=timeout_seconds, connection=self._over
        )
        answer.add_done_callback(lambda done: self._on_answer(address, queue, done))

    def _on_answer(self, address: str, queue: MessageQueue, answer_future: Future[Command]) -> None:
        problem = answer_future.exception()
        if problem is None:
            try:
                stored = self._parse_answer(PeerAnswer(address, answer_future.result()), queue)
            except RocketMQError as error:
                problem = error
            else:
                # Before the result, whose callbacks may already send the next message.
                self._outbox.record_answer(queue, self._began_ms)
                self.result.set_result(stored)
                return
        may_try_again = (
            problem.code in TRY_ANOTHER_BROKER
            if isinstance(problem, RefusedError)
            else isinstance(problem, UnreachableError | ProtocolError)
        )
        if may_try_again:
            self._avoid_broker(problem)
        if may_try_again and self._tries_left > 0 and time.monotonic() < self._deadline:
            # This thread reads the answers of all sends; connecting would hold them up. If the client is closed, no
            # other thread runs, and the send would never end.
            self._outbox.network.run_in_background(self.start, on_closed=lambda: self.result.set_exception(problem))
        else:
            self.result.set_exception(problem)

    def _parse_answer(self, answer: PeerAnswer, queue: MessageQueue) -> StoredResult:
        answer.check_code(STORED)
        response = parse_send_response(answer, queue, max(1, len(self._parcel.unique_keys)))
        return StoredResult(self._parcel, queue, ResponseCode(answer.code), response)

    def _avoid_broker(self, problem: BaseException) -> None:
        """Avoid the failed broker for a while; refresh the route if the broker does not have the topic."""
        if self._queue is not None:
            self._outbox.record_answer(self._queue, self._began_ms, has_failed=True)
        if isinstance(problem, RefusedError) and problem.code == ResponseCode.TOPIC_NOT_EXIST:
            # The known route is outdated; the next attempt asks a name server.
            self._outbox.routing.forget_route(self._parcel.topic)

    def _timeout_error(self) -> RocketMQError:
        return UnreachableError(
            f"topic {self._parcel.topic}: expected to be sent within {self._seconds} s, but it was not"
        )


def parse_send_response(answer: PeerAnswer, queue: MessageQueue, message_count: int) -> SendMessageResponse:
    """Return the broker's response to a send, after checking its queue and its offset.

    Args:
        answer: answer to a send.
        queue: queue that they were sent to.
        message_count: number of messages.

    Raises:
        PlaceError: if the answer has no valid position in the queue.
    """
    try:
        response = answer.header_as(SendMessageResponse)
    except ProtocolError as error:
        raise PositionError(str(error)) from None
    if response.queue_id != queue.queue_id or not 0 <= response.queue_offset <= MAX_QUEUE_OFFSET - message_count:
        raise PositionError(
            f"{answer.address}: expected that the message was stored in queue {queue.queue_id} of {queue.topic}, but "
            f"the broker answered with queue offset {response.queue_offset} of queue {response.queue_id}"
        )
    return response


def _now_ms() -> float:
    return time.monotonic() * 1000
