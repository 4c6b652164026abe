"""The few questions to a RocketMQ server that need no client, in its remoting protocol.

    frame = int32 length of the rest | int32 header length | header | body

The first byte of the header's length is its codec, 0 for JSON. Every question has a connection of
its own.

With them "ready" means that a client would find the broker, not that some time has passed; and a
pop can be left unacknowledged, which RocketMQ's own client never does.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping

GET_MAX_OFFSET = 30
GET_BROKER_CLUSTER_INFO = 106
POP_MESSAGE = 200050

FRAME_LIMIT_BYTES = 16 * 1024 * 1024
"""RocketMQ's own limit (NettyDecoder)."""


class RemotingError(Exception):
    """The server answered with an error code."""


def knows_broker(name_server_address: str, broker_address: str) -> bool:
    """Tell whether a broker has registered at a name server.

    Args:
        name_server_address: `ip:port`.
        broker_address: The `ip:port` that the broker gives to clients.

    Returns:
        False also while the name server does not answer.
    """
    try:
        _, body = ask(name_server_address, GET_BROKER_CLUSTER_INFO)
    except OSError:
        return False
    # The body is fastjson's dialect (unquoted integer keys), which json does not read; the address
    # is quoted in it.
    return f'"{broker_address}"'.encode() in body


def max_offset(broker_address: str, topic: str, queue_id: int = 0) -> int:
    """Return the offset that the next message of a queue will have; 0 if there is no such topic."""
    fields, _ = ask(broker_address, GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    return int(fields["offset"])


def pop_and_forget(broker_address: str, topic: str, group: str, invisible_ms: int) -> None:
    """Pop the messages of a topic for a group (5.x) and never acknowledge them.

    The broker writes a check point record, and puts the messages into the group's pop retry topic
    when they have been invisible for long enough.
    """
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": str(invisible_ms),
        "pollTime": "0",
        "bornTime": str(time.time_ns() // 1_000_000),
        # From the queue's first message on.
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    ask(broker_address, POP_MESSAGE, fields)


def ask(address: str, code: int, fields: Mapping[str, str] | None = None) -> tuple[dict[str, str], bytes]:
    """Send one request and return the answer's fields and body.

    Args:
        address: The server's `ip:port`, IPv6 without brackets.
        code: The request's code.
        fields: Its arguments.

    Raises:
        RemotingError: The answer's code is not 0.
        OSError: The server did not answer, or not in the protocol.
    """
    ip, _, port = address.rpartition(":")
    request = {"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 0}
    header = json.dumps(request | {"extFields": dict(fields or {})}).encode()
    with socket.create_connection((ip, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header), len(header)) + header)
        (length,) = struct.unpack(">i", _receive(connection, 4))
        if not 4 <= length <= FRAME_LIMIT_BYTES:
            raise OSError(f"read a frame of {length} bytes, expected 4 to {FRAME_LIMIT_BYTES}")
        frame = _receive(connection, length)
    end = 4 + (struct.unpack(">i", frame[:4])[0] & 0xFFFFFF)
    answer = json.loads(frame[4:end])
    if answer["code"] != 0:
        raise RemotingError(f"{address} answered {answer['code']}: {answer.get('remark')}")
    return answer.get("extFields") or {}, frame[end:]


def _receive(connection: socket.socket, count: int) -> bytes:
    """Read exactly `count` bytes."""
    received = b""
    while len(received) < count:
        chunk = connection.recv(count - len(received))
        if not chunk:
            raise OSError(f"connection closed after {len(received)} of {count} bytes")
        received += chunk
    return received
