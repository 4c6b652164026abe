"""Reading of queues pull by pull, by offsets that the caller keeps.

    with Puller("audit", ClientOptions("127.0.0.1:9876")) as puller:
        for queue in puller.queues("orders"):
            for message in puller.read(queue, puller.min_offset(queue), puller.max_offset(queue)):
                ...

Thread-safe; created by the process that uses it. This client does not join the group: other members neither see it nor
share queues with it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import NoRouteError, ProtocolError
from commitlake.connectors.rocketmq.network import Closable, Network, PeerAnswer, wait_for_answer
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.connectors.rocketmq.producers.messages import check_group
from commitlake.connectors.rocketmq.queue_offsets import QueueOffsets
from commitlake.connectors.rocketmq.records import parse_records
from commitlake.connectors.rocketmq.routing import Routing
from commitlake.schemas.layouts.rocketmq.commitlog import Message
from commitlake.schemas.layouts.rocketmq.properties import RETRY_TOPIC
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.headers import PullMessageRequest, PullMessageResponse, PullSysFlag
from commitlake.schemas.remoting.heartbeats import (
    ALL_TAGS,
    SQL92_EXPRESSION,
    TAG_EXPRESSION,
    CheckClientConfig,
    SubscriptionData,
    parse_tag_expression,
)
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.routes import MASTER_ID, MessageQueue
from commitlake.schemas.remoting.signing import Credentials

DEFAULT_BATCH = 32
_GRACE_SECONDS = 10.0
"""Additional waiting time of a pull, because brokers check waiting pulls only every five seconds."""


class PullStatus(IntEnum):
    """The outcome of a pull, such as messages found, no new message, or an invalid offset."""

    FOUND = ResponseCode.SUCCESS
    NO_NEW = ResponseCode.PULL_NOT_FOUND
    NONE_MATCHED = ResponseCode.PULL_RETRY_IMMEDIATELY
    OFFSET_ILLEGAL = ResponseCode.PULL_OFFSET_MOVED


class PullResult(NamedTuple):
    """The messages that a pull returned, its status, and the queue's offsets.

    Attributes:
        next_offset: offset of the next pull.
        min_offset: the queue's first offset.
        max_offset: the queue's next offset.
        messages: matching messages; empty unless the status is FOUND.
    """

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Message]


class PullAnswer(NamedTuple):
    """The answer to a pull, with records that are not parsed yet.

    Attributes:
        status: status of the pull.
        response: header with the queue's offsets.
        answer: the answer; its body contains the records as stored, its remark the store's status.
    """

    status: PullStatus
    response: PullMessageResponse
    answer: PeerAnswer


class PendingPull(NamedTuple):
    """A pull that was sent and has no answer yet.

    Attributes:
        address: address of the broker.
        asked: future that receives the answer.
        seconds: time limit for the answer.
        is_master: whether the request was sent to a master.
    """

    address: str
    asked: Future[Command]
    seconds: float
    is_master: bool

    def wait(self) -> PullAnswer:
        """Wait for the answer.

        Raises:
            UnreachableError: if the broker does not answer.
            RefusedError: if it refuses the request.
            ProtocolError: if its answer does not fit the request.
        """
        answer = wait_for_answer(self.address, self.asked, self.seconds).check_code(list(PullStatus))
        response, status = answer.header_as(PullMessageResponse), PullStatus(answer.code)
        largest = max(response.next_begin_offset, response.min_offset, response.max_offset)
        if largest > MAX_QUEUE_OFFSET or (status is PullStatus.FOUND and not answer.command.body):
            raise ProtocolError(
                f"{self.address}: the broker's answer to a pull is not possible: expected offsets up to "
                f"{MAX_QUEUE_OFFSET}, and records if it says that it found some, found next offset "
                f"{response.next_begin_offset}, queue {response.min_offset} to {response.max_offset} and "
                f"{len(answer.command.body)} bytes of records"
            )
        return PullAnswer(status, response, answer)


class Puller(Closable):
    """A client that reads messages of queues, one pull request after another.

    Attributes:
        group: the consumer group of the offsets.
        offsets: offsets of queues, and of the group in them.
        routing: routes of the client.
    """

    def __init__(self, group: str, options: ClientOptions, credentials: Credentials | None = None) -> None:
        """Create the reader without connecting.

        Args:
            group: the consumer group.
            options: addresses, time limits and other settings.
            credentials: keys that sign requests; by default those in the environment.

        Raises:
            InvalidMessageError: if the group's name is not valid.
        """
        self.group = check_group(group)
        self._network = Network(options, credentials)
        self.routing = Routing(self._network)
        self.offsets = QueueOffsets(self._network, self.routing)
        self._suggested: dict[MessageQueue, int] = {}
        self._checked: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Close all connections."""
        self._network.close()

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues from which a topic's messages can be read.

        Raises:
            NoRouteError: if no broker has the topic.
            UnreachableError: if no name server answers.
        """
        return self.routing.queues_to_read(topic)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = ALL_TAGS,
        is_sql: bool = False,
        max_messages: int = DEFAULT_BATCH,
        wait_seconds: float = 0.0,
    ) -> PullResult:
        """Return the messages of a queue from an offset on, as many as one pull returns.

        Args:
            offset: offset of the first message.
            expression: `*`, tags separated by `||`, or an SQL92 filter.
            is_sql: whether it is an SQL92 filter.
            max_messages: maximum number of messages; brokers have their own limits, too.
            wait_seconds: time for which the broker may wait if there is no message yet; up to 5 s more.

        Raises:
            NoRouteError: if the queue's broker is not known.
            UnreachableError: if it does not answer.
            RefusedError: if it refuses the request.
            ProtocolError: if its answer does not fit the request.
        """
        pending = self.send_pull(
            queue, offset, expression=expression, is_sql=is_sql, max_messages=max_messages, wait_seconds=wait_seconds
        )
        answer = pending.wait()
        response = answer.response
        self._suggested[queue] = response.suggest_which_broker_id
        # The broker compares hashes of tags, so drop messages with another tag of the same hash.
        tags = None if is_sql else parse_tag_expression(expression)
        found = parse_records(answer.answer) if answer.status is PullStatus.FOUND else []
        if queue.topic.startswith(RETRY_PREFIX):
            found = [_set_original_topic(message) for message in found]
        return PullResult(
            answer.status,
            response.next_begin_offset,
            response.min_offset,
            response.max_offset,
            [message for message in found if tags is None or message.tags in tags],
        )

    def send_pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        expression: str = ALL_TAGS,
        is_sql: bool = False,
        max_messages: int = DEFAULT_BATCH,
        wait_seconds: float = 0.0,
        from_master: bool = False,
    ) -> PendingPull:
        """Send a pull request, and return a handle to wait for its answer.

        Args:
            queue: see `pull`.
            offset: see `pull`.
            expression: see `pull`; for tags, the answer also contains messages whose tag has the same hash.
            is_sql: see `pull`.
            max_messages: see `pull`.
            wait_seconds: see `pull`.
            from_master: whether to use the master if possible, even if the broker suggested another address.

        Raises:
            NoRouteError: if the queue's broker is not known.
            UnreachableError: if the request cannot be sent.
            RefusedError: if the broker cannot parse an SQL92 filter.
        """
        broker = self.routing.broker_data(queue.broker_name)
        address = None if from_master else broker.broker_addrs.get(self._suggested.get(queue, MASTER_ID))
        address = address or broker.any_address
        if address is None:
            raise NoRouteError(
                f"broker {queue.broker_name!r}: expected its address in the answer of the name servers, found none"
            )
        now_ms = time.time_ns() // 1_000_000
        if is_sql:
            self._check_sql_filter(address, queue.topic, expression, now_ms)
        header = PullMessageRequest(
            self.group,
            queue.topic,
            queue.queue_id,
            offset,
            max_messages,
            PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if wait_seconds > 0 else 0),
            commit_offset=-1,
            suspend_timeout_millis=int(wait_seconds * 1000),
            sub_version=now_ms,
            subscription=expression,
            expression_type=SQL92_EXPRESSION if is_sql else TAG_EXPRESSION,
            broker_name=queue.broker_name,
        )
        seconds = self._network.options.request_seconds + (wait_seconds + _GRACE_SECONDS if wait_seconds > 0 else 0)
        asked = self._network.send_request(address, RequestCode.PULL_MESSAGE, header, timeout_seconds=seconds)
        return PendingPull(address, asked, seconds, is_master=address == broker.master_address)

    def read(self, queue: MessageQueue, begin: int, end: int, *, expression: str = ALL_TAGS) -> Iterator[Message]:
        """Yield the messages of a queue in a range of offsets, as far as they exist.

        Offsets that the broker no longer has are skipped. Raises what `pull` does, and ProtocolError if the broker
        makes no progress in the middle of the queue.
        """
        while begin < end:
            most = min(DEFAULT_BATCH, end - begin)
            result = self.pull(queue, begin, expression=expression, max_messages=most)
            # Without a filter, no message is after the end, because the number of entries was limited. After a loss of
            # messages, queue offsets in records differ from those of the broker's entries, and must not be used.
            is_within = expression == ALL_TAGS
            yield from (message for message in result.messages if is_within or message.queue_offset < end)
            if result.next_offset <= begin:
                if result.status is PullStatus.FOUND or result.max_offset > begin:  # not the queue's end
                    raise ProtocolError(
                        f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}: expected a next queue offset "
                        f"after {begin} in the broker's answer, found {result.next_offset}, although the queue ends at "
                        f"{result.max_offset}"
                    )
                return
            begin = result.next_offset

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that the queue still has."""
        return self.offsets.first(queue)

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return self.offsets.next(queue)

    def committed_offset(self, queue: MessageQueue) -> int | None:
        """Return the group's next offset in the queue; None if it has none."""
        return self.offsets.committed(queue, self.group)

    def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's next offset in the queue at the broker."""
        self.offsets.commit(queue, self.group, offset)

    def _check_sql_filter(self, address: str, topic: str, expression: str, now_ms: int) -> None:
        """Make the broker check a filter, because a pull with an invalid one would return every message."""
        if (address, expression) in self._checked:
            return
        subscription = SubscriptionData(topic, expression, sub_version=now_ms, expression_type=SQL92_EXPRESSION)
        body = serialize_body(CheckClientConfig(self._network.client_id, self.group, subscription))
        self._network.send_and_wait(address, RequestCode.CHECK_CLIENT_CONFIG, None, body)
        self._checked.add((address, expression))


def _set_original_topic(message: Message) -> Message:
    topic = message.properties.get(RETRY_TOPIC)
    return message if topic is None else replace(message, topic=topic)
