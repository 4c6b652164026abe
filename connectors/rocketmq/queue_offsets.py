"""Offsets of queues, and of consumer groups in them, as stored by brokers."""

from __future__ import annotations

from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import ProtocolError
from commitlake.connectors.rocketmq.network import Network, PeerAnswer
from commitlake.connectors.rocketmq.routing import Routing
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.headers import (
    OFFSET_WAS_RESET,
    MaxOffsetRequest,
    OffsetResponse,
    QueryConsumerOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
    TimestampResponse,
    UpdateConsumerOffsetRequest,
)
from commitlake.schemas.remoting.routes import MessageQueue


class QueueOffsets:
    """A thread-safe client that asks master brokers for offsets of queues, and of consumer groups in them.

    Every method raises NoRouteError, UnreachableError and RefusedError.
    """

    def __init__(self, network: Network, routing: Routing) -> None:
        self._network = network
        self._routing = routing

    def first(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that the queue still has."""
        return _parse_offset(
            self._ask_master(queue, RequestCode.GET_MIN_OFFSET, QueueRequest(queue.topic, queue.queue_id))
        )

    def next(self, queue: MessageQueue) -> int:
        """Return the offset that the queue's next message will get."""
        return _parse_offset(
            self._ask_master(queue, RequestCode.GET_MAX_OFFSET, MaxOffsetRequest(queue.topic, queue.queue_id))
        )

    def search_by_time(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message that was stored at or after a time.

        If there is none, brokers 5.x return the offset of the next message, brokers 4.9 that of the last.
        """
        header = SearchOffsetRequest(queue.topic, queue.queue_id, timestamp_ms)
        return _parse_offset(self._ask_master(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))

    def earliest_store_time_ms(self, queue: MessageQueue) -> int | None:
        """Return the store time of the first message; None if there is none."""
        header = QueueRequest(queue.topic, queue.queue_id)
        found = (
            self._ask_master(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
            .header_as(TimestampResponse)
            .timestamp
        )
        return found if found >= 0 else None

    def committed(self, queue: MessageQueue, group: str) -> int | None:
        """Return a group's next offset in a queue; None if it has none.

        Brokers 4.9 answer 0 instead of None while the queue's first message exists and is in memory.
        """
        header = QueryConsumerOffsetRequest(group, queue.topic, queue.queue_id, set_zero_if_not_found=False)
        accepted = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = self._network.send_and_wait(
            self._routing.master_address(queue.broker_name),
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            accepted_codes=accepted,
        )
        return answer.header_as(OffsetResponse).offset if answer.code == ResponseCode.SUCCESS else None

    def commit(self, queue: MessageQueue, group: str, offset: int) -> bool:
        """Store a group's next offset in a queue at the broker.

        Returns:
            False if the broker has ignored it: a broker 5.x that has reset the group's offset keeps that until a client
            of the group pulls, and reports success nevertheless.
        """
        header = UpdateConsumerOffsetRequest(group, queue.topic, queue.queue_id, offset)
        return self._ask_master(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header).command.remark != OFFSET_WAS_RESET

    def _ask_master(self, queue: MessageQueue, code: RequestCode, header: NamedTuple) -> PeerAnswer:
        return self._network.send_and_wait(self._routing.master_address(queue.broker_name), code, header)


def _parse_offset(answer: PeerAnswer) -> int:
    """Return the offset that an answer contains."""
    offset = answer.header_as(OffsetResponse).offset
    if not -1 <= offset <= MAX_QUEUE_OFFSET:
        raise ProtocolError(
            f"{answer.address}: expected a queue offset of at most {MAX_QUEUE_OFFSET} in the broker's answer, found "
            f"{offset}"
        )
    return offset
