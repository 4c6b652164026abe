"""What strangers may use of a server."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES

DEFAULT_CONNECTIONS_OF_ONE = 5_000
"""Connections from one address, the loopback one, too: a quarter of all."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one port.

    Attributes:
        connections: how many there may be.
        connections_of_one: how many from one address.
        frame_bytes: a larger frame ends its connection before it is read.
        idle_seconds: after this long without traffic a connection is closed, as by RocketMQ.
        handshake_seconds: after this long without a whole TLS handshake a connection that needs one is closed.
        unread_bytes: what a peer may leave unread before it is not read from either.
        unsent_bytes: what it may leave unread before it is cut off; room for some answers of the largest kind.
        frame_seconds: how long a frame may take to arrive after its first byte.
        unfinished_bytes: frames of all connections that have not arrived whole; where there is more, the frames that
            have taken longest are cut off.
        memory_bytes: requests that wait for their turn, and answers that wait to be read, of all connections; where
            there is more, the connection with the most is cut off.
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
