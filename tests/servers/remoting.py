"""Requests of the tests to a RocketMQ server, sent with this project's own client.

They make it possible to wait until clients can find a broker, instead of waiting for some time, and to leave a popped
message unacknowledged, which RocketMQ's own client never does.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from commitlake.connectors.rocketmq.errors import RefusedError, RocketMQError
from commitlake.connectors.rocketmq.network import Network, PeerAnswer
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import Long
from commitlake.schemas.remoting.headers import MaxOffsetRequest, OffsetResponse
from commitlake.schemas.remoting.routes import ClusterInfo

ANSWER_SECONDS = 10
_POP_ATTEMPTS = 10


class PopRequest(NamedTuple):
    """Header of a pop (5.x), which returns messages and hides them from the group's other consumers for a while."""

    consumer_group: str
    topic: str
    queue_id: int
    max_msg_nums: int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: int
    exp_type: str = "TAG"
    exp: str = "*"
    order: bool = False


def knows_broker(name_server_address: str, broker_address: str) -> bool:
    """Return whether a broker has registered with a name server.

    Args:
        name_server_address: `ip:port`.
        broker_address: The `ip:port` that the broker gives to clients.

    Returns:
        False also if the name server does not answer.
    """
    try:
        brokers = ask(name_server_address, RequestCode.GET_BROKER_CLUSTER_INFO).body_as(ClusterInfo).broker_addr_table
    except RocketMQError:
        return False
    return any(broker_address in broker.broker_addrs.values() for broker in brokers.values())


def max_offset(broker_address: str, topic: str, queue_id: int = 0) -> int:
    """Return the offset of the next message of a queue; 0 if the topic does not exist."""
    answer = ask(broker_address, RequestCode.GET_MAX_OFFSET, MaxOffsetRequest(topic, queue_id))
    return answer.header_as(OffsetResponse).offset


def pop_and_forget(broker_address: str, topic: str, group: str, invisible_ms: int) -> None:
    """Pop the messages of a topic for a group (5.x) and never acknowledge them.

    The broker writes a checkpoint record, and moves the messages into the group's pop retry topic after their invisible
    time.
    """
    # A broker refuses a pop that was sent half a second ago, as on a machine that is busy; it has then done nothing.
    for attempt in range(_POP_ATTEMPTS):
        now_ms = time.time_ns() // 1_000_000
        # From any queue, starting at its first message.
        request = PopRequest(group, topic, -1, 32, invisible_ms, poll_time=0, born_time=now_ms, init_mode=0)
        try:
            ask(broker_address, RequestCode.POP_MESSAGE, request)
        except RefusedError as error:
            if error.code != ResponseCode.POLLING_TIMEOUT or attempt == _POP_ATTEMPTS - 1:
                raise
        else:
            return


def ask(address: str, code: int, header: NamedTuple | None = None, body: bytes = b"") -> PeerAnswer:
    """Send one request over a new connection, and return the answer.

    Args:
        address: The server's `ip:port`, IPv6 without brackets.
        code: The request's code.
        header: Its arguments.
        body: Its body.

    Raises:
        RefusedError: The answer's code is not 0.
        UnreachableError: The server did not answer.
    """
    network = Network(ClientOptions(address, request_seconds=ANSWER_SECONDS))
    try:
        return network.send_and_wait(address, code, header, body)
    finally:
        network.close()
