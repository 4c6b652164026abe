"""A producer of messages, over the protocol code of this project.

    with Producer("shop", ClientOptions("127.0.0.1:9876")) as producer:
        producer.send(OutgoingMessage("orders", b"...", tags="paid", keys=("order-4711",)))

Thread-safe; created by the process that uses it. Closing the producer waits until each asynchronous send has an answer
or has been given up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from commitlake.connectors.rocketmq.connection import PeerConnection
from commitlake.connectors.rocketmq.errors import InvalidMessageError, ProtocolError
from commitlake.connectors.rocketmq.network import Closable, Network
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producers.compression import DEFAULT_THRESHOLD_BYTES, check_codec, compress
from commitlake.connectors.rocketmq.producers.messages import (
    DEFAULT_MAX_BODY_BYTES,
    OutgoingMessage,
    SendResult,
    SendStatus,
    check_group,
    check_message,
    stored_properties,
)
from commitlake.connectors.rocketmq.producers.sending import (
    EncodedMessage,
    SendOperation,
    SendState,
    StoredResult,
    parse_send_response,
)
from commitlake.connectors.rocketmq.producers.unique_keys import UniqueKeys
from commitlake.connectors.rocketmq.routing import Routing
from commitlake.schemas.layouts.rocketmq.properties import UNIQ_KEY
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.remoting.batch import BatchItem, parse_batch, serialize_batch
from commitlake.schemas.remoting.codes import STORED
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.signing import Credentials

_T = TypeVar("_T")

_WAITS = "WAIT\x01true\x02"
"""Properties of a batch itself; few, because brokers 4.9.4 to 5.3.3 copy them to each of its messages."""
_CLOSING_SECONDS = 1.0
"""Time allowed beyond a send's own time limit before it is given up."""


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """Settings for sending messages; the defaults are the Java client's.

    Attributes:
        send_seconds: time limit for all attempts of a message together.
        tries: number of attempts for a message whose queue is not given.
        max_body_bytes: maximum size before compression, of a message or of all messages of a batch together.
        compression: zlib, lz4, zstd or none.
        compress_from_bytes: minimum size of a body to be compressed; batches are not compressed.
        avoid_slow_brokers: whether to avoid a broker for a while that was slow or failed; off in Java.
    """

    send_seconds: float = 3.0
    tries: int = 3
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    compression: str = "zlib"
    compress_from_bytes: int = DEFAULT_THRESHOLD_BYTES
    avoid_slow_brokers: bool = True


class Producer(Closable):
    """A client that sends messages to brokers, with retries.

    Attributes:
        group: the producer group.
        network: connections of the producer.
        routing: routes of the producer.
    """

    def __init__(
        self,
        group: str,
        options: ClientOptions,
        sending: ProducerOptions | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        """Create the producer without connecting.

        Args:
            group: the producer group.
            options: addresses, time limits and other settings.
            credentials: keys that sign requests; by default those in the environment.

        Raises:
            InvalidMessageError: if the group's name is not valid.
            ClientOptionError: if a compression is not known.
        """
        self.group = check_group(group)
        self.network = Network(options, credentials)
        self.routing = Routing(self.network)
        self._how = sending or ProducerOptions()
        self._codec = check_codec(self._how.compression)
        self._outbox = SendState(group, self.network, self.routing, avoid_slow_brokers=self._how.avoid_slow_brokers)
        self._keys = UniqueKeys(self.network.local_ip)
        self._under_way: set[Future[StoredResult]] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait until sends in progress have ended, and close all connections."""
        with self._lock:
            under_way = list(self._under_way)
        # Without the lock, which each send takes when it ends.
        wait(under_way, self._how.send_seconds + _CLOSING_SECONDS)
        self.network.close()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues that a message of the topic may be sent to, in order.

        Raises:
            NoRouteError: if there is none.
            UnreachableError: if no name server answers.
        """
        return self.routing.queues_to_publish(topic)

    def send(self, message: OutgoingMessage, *, queue: MessageQueue | None = None) -> SendResult:
        """Send a message, and wait until it is in the log.

        Args:
            queue: the only queue to send to; by default, any queue of the topic.

        Raises:
            InvalidMessageError: if it cannot be sent.
            NoRouteError: if there is no queue for it.
            UnreachableError: if no broker confirmed it in time; it may be in the log nevertheless.
            RefusedError: if a broker refuses it.
        """
        return self.send_async(message, queue=queue).result()

    def send_async(
        self,
        message: OutgoingMessage,
        callback: Callable[[Future[SendResult]], object] | None = None,
        *,
        queue: MessageQueue | None = None,
    ) -> Future[SendResult]:
        """Send a message without waiting until it is in the log.

        Args:
            callback: called with the finished future, by a thread that must not be blocked.
            queue: the only queue to send to; by default, any queue of the topic.

        Returns:
            A future with the result, or with an error of `send`.

        Raises:
            InvalidMessageError: if it cannot be sent.
        """
        parcel = self.encode_message(message)
        return self._start_send(parcel, queue, _to_send_result, callback)

    def send_one_way(self, message: OutgoingMessage, *, queue: MessageQueue | None = None) -> str:
        """Send a message without any confirmation, and return its UNIQ_KEY.

        Raises:
            InvalidMessageError: if it cannot be sent.
            NoRouteError: if there is no queue for it.
            UnreachableError: if there is no connection.
        """
        parcel = self.encode_message(message)
        address, code, fields = self._outbox.make_request(parcel, queue or self._outbox.choose_queue(parcel.topic))
        self.network.send_one_way(address, code, None, parcel.body, fields=fields)
        return parcel.unique_keys[0]

    def send_batch(self, messages: Sequence[OutgoingMessage], *, queue: MessageQueue | None = None) -> list[SendResult]:
        """Send messages of one topic to one queue in a single request, and wait until all are in the log.

        Raises:
            InvalidMessageError: if one of them cannot be sent, or not with the others.
            NoRouteError: if there is no queue for them.
            UnreachableError: if no broker confirmed them in time; they may be in the log nevertheless.
            RefusedError: if a broker refuses them.
        """
        return self.send_batch_async(messages, queue=queue).result()

    def send_batch_async(
        self, messages: Sequence[OutgoingMessage], *, queue: MessageQueue | None = None
    ) -> Future[list[SendResult]]:
        """Send messages of one topic to one queue in a single request, without waiting for the answer.

        Raises:
            InvalidMessageError: if one of them cannot be sent, or not with the others.
        """
        return self._start_send(self._encode_batch(messages), queue, _to_send_results, None)

    def send_encoded_batch(
        self, queue: MessageQueue, body: bytes, sys_flag: int = 0, connection: PeerConnection | None = None
    ) -> int:
        """Send encoded messages in a single request, without retries, and wait until they are in the log.

        Args:
            queue: queue to send to.
            body: body of a batch, see `schemas.remoting.batch`; messages of one topic, without delays.
            sys_flag: flags of the compression that all of them have.
            connection: the connection to use; by default, the producer's own.

        Returns:
            The queue offset of the first message; the others follow it.

        Raises:
            NoRouteError: if the queue's broker is not known.
            UnreachableError: if there was no answer in time; they may be in the log nevertheless.
            ProtocolError: if the answer is not valid, or has no valid position; they may be in the log nevertheless.
            RefusedError: if the broker refuses them; then none of them is in the log.
        """
        return self._send_once(
            queue, EncodedMessage(queue.topic, body, _WAITS, (), sys_flag, is_batch=True), connection
        )

    def send_encoded_single(
        self, queue: MessageQueue, body: bytes, sys_flag: int = 0, connection: PeerConnection | None = None
    ) -> int:
        """Send an encoded batch of one message as a plain message, which has a slightly larger size limit.

        Raises the errors that `send_encoded_batch` raises.
        """
        (item,) = parse_batch(body)
        properties = item.properties.decode() + _WAITS
        return self._send_once(
            queue, EncodedMessage(queue.topic, item.body, properties, (), sys_flag, item.flag), connection
        )

    def _send_once(
        self, queue: MessageQueue, encoded_message: EncodedMessage, connection: PeerConnection | None
    ) -> int:
        address, code, fields = self._outbox.make_request(encoded_message, queue)
        seconds = self._how.send_seconds
        answer = self.network.send_and_wait(
            address,
            code,
            None,
            encoded_message.body,
            fields=fields,
            timeout_seconds=seconds,
            accepted_codes=STORED,
            connection=connection,
        )
        return parse_send_response(answer, queue, 1).queue_offset

    def encode_message(self, message: OutgoingMessage, sys_flag: int = 0, **extra: str) -> EncodedMessage:
        """Check and encode a message, and return it in the form that `send_encoded_message` takes.

        Args:
            sys_flag: flags that the kind of sending adds.
            extra: properties that the kind of sending adds.

        Raises:
            InvalidMessageError: if it cannot be sent.
        """
        how = self._how
        check_message(message, how.max_body_bytes)
        key = self._unique_key(message)
        properties = stored_properties(message, key, extra).decode()
        body = message.body
        if len(body) >= how.compress_from_bytes and self._codec is not BodyCodec.NONE:
            body, bits = compress(body, self._codec)
            sys_flag |= bits
        return EncodedMessage(message.topic, body, properties, (key,), sys_flag, message.flag)

    def send_encoded_message(self, encoded_message: EncodedMessage) -> SendResult:
        """Send a message that `encode_message` has encoded, and wait until it is in the log."""
        return self._start_send(encoded_message, None, _to_send_result, None).result()

    def choose_queue(self, topic: str, last_broker: str | None = None) -> MessageQueue:
        """Return the queue for the next message of a topic: queues take turns, and unavailable brokers are avoided.

        Args:
            topic: name of the topic.
            last_broker: broker of the last attempt, if there was one.

        Raises:
            NoRouteError: if there is no queue.
            UnreachableError: if no name server answers.
        """
        return self._outbox.choose_queue(topic, last_broker)

    def new_message_ids(self, count: int) -> pa.Array:
        """Return new message ids (UNIQ_KEY), as many as requested."""
        return self._keys.next_batch(count)

    def start_encoded_message(
        self, encoded_message: EncodedMessage, queue: MessageQueue, connection: PeerConnection
    ) -> Future[StoredResult]:
        """Send an encoded message to a queue once, over a given connection, and return a future of the result."""
        return self._start_send(encoded_message, queue, lambda stored: stored, None, connection)

    def _unique_key(self, message: OutgoingMessage) -> str:
        return message.unique_key or message.system_properties.get(UNIQ_KEY) or self._keys.next()

    def _encode_batch(self, messages: Sequence[OutgoingMessage]) -> EncodedMessage:
        if not messages:
            raise InvalidMessageError("batch: expected at least one message, found none")
        first = messages[0]
        items, keys = [], []
        for message in messages:
            check_message(message, self._how.max_body_bytes)
            if (message.topic, message.wait_store) != (first.topic, first.wait_store):
                raise InvalidMessageError(
                    "batch: expected messages with the same topic and the same wait_store, found different ones"
                )
            if message.delay_level or message.deliver_at_ms is not None or message.topic.startswith(RETRY_PREFIX):
                raise InvalidMessageError(
                    "batch: expected messages without a delay and not of a retry topic, found one: send it by itself"
                )
            key = self._unique_key(message)
            keys.append(key)
            items.append(BatchItem(message.flag, message.body, stored_properties(message, key)))
        body = serialize_batch(items)
        if len(body) > self._how.max_body_bytes:
            raise InvalidMessageError(f"batch: expected at most {self._how.max_body_bytes} bytes, found {len(body)}")
        properties = _WAITS if first.wait_store else "WAIT\x01false\x02"
        return EncodedMessage(first.topic, body, properties, tuple(keys), is_batch=True)

    def _start_send(
        self,
        encoded_message: EncodedMessage,
        queue: MessageQueue | None,
        to_result: Callable[[StoredResult], _T],
        callback: Callable[[Future[_T]], object] | None,
        connection: PeerConnection | None = None,
    ) -> Future[_T]:
        how = self._how
        sending = SendOperation(
            self._outbox, encoded_message, queue=queue, seconds=how.send_seconds, tries=how.tries, connection=connection
        )
        result: Future[_T] = Future()
        # A sent request cannot be called back. If an application could cancel the future, setting its result would fail
        # in the thread that reads answers.
        result.set_running_or_notify_cancel()
        if callback is not None:
            result.add_done_callback(callback)
        with self._lock:
            self._under_way.add(sending.result)
        # Before the start, which may already end the send.
        sending.result.add_done_callback(lambda done: self._finish_send(done, to_result, result))
        sending.start()
        return result

    def _finish_send(
        self, stored_future: Future[StoredResult], to_result: Callable[[StoredResult], _T], result_future: Future[_T]
    ) -> None:
        with self._lock:
            self._under_way.discard(stored_future)
        problem = stored_future.exception()
        try:
            if problem is None:
                result_future.set_result(to_result(stored_future.result()))
                return
        except ProtocolError as error:
            problem = error
        result_future.set_exception(problem)


def _to_send_result(stored: StoredResult) -> SendResult:
    response = stored.response
    key = stored.parcel.unique_keys[0]
    return SendResult(SendStatus(stored.code), key, response.msg_id, stored.queue, response.queue_offset)


def _to_send_results(stored: StoredResult) -> list[SendResult]:
    keys, ids = stored.parcel.unique_keys, stored.response.msg_id.split(",")
    if len(ids) != len(keys):
        raise ProtocolError(
            f"{stored.queue}: expected {len(keys)} message ids for a batch of as many messages, found {len(ids)}"
        )
    first = stored.response.queue_offset
    return [
        SendResult(SendStatus(stored.code), key, msg_id, stored.queue, first + number)
        for number, (key, msg_id) in enumerate(zip(keys, ids, strict=True))
    ]
