"""Limits on the resources that clients of a server may use."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES

DEFAULT_CONNECTIONS_OF_ONE = 5_000
"""Connections from one address, including loopback: a quarter of all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one port.

    Attributes:
        connections: maximum number of connections.
        connections_of_one: maximum number from one address.
        frame_bytes: maximum size of a frame; a larger one closes its connection before it is read.
        idle_seconds: time without traffic after which a connection is closed, as in RocketMQ.
        handshake_seconds: time limit for a TLS handshake, if the connection needs one.
        unread_bytes: unread answers of a peer with which the server stops reading from it.
        unsent_bytes: unread answers of a peer with which its connection is closed; room for some of the largest
            answers.
        frame_seconds: time limit for a frame, from its first byte to its last.
        unfinished_bytes: incomplete frames of all connections; if they exceed it, the connections with the oldest
            incomplete frames are closed.
        memory_bytes: waiting requests and unread answers of all connections; if they exceed it, the connections with
            the most are closed.
    """

    connections: int = 20_000
    connections_of_one: int = DEFAULT_CONNECTIONS_OF_ONE
    frame_bytes: int = MAX_FRAME_BYTES
    idle_seconds: float = 120
    handshake_seconds: float = 10
    unread_bytes: int = 1 << 20
    unsent_bytes: int = 64 << 20
    frame_seconds: float = 60
    unfinished_bytes: int = 256 << 20
    memory_bytes: int = 512 << 20
