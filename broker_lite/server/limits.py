"""Limits on the resources that clients of a server may use, and on the server's own file descriptors.

Connections must leave some file descriptors for the store's files: a store that cannot open its files cannot flush them
to disk. The soft limit is often 1,024, and a process may raise it up to the hard limit.
"""

from __future__ import annotations

import logging
import resource
from dataclasses import dataclass

from commitlake.broker_lite.stores.engine.mapped_file import DEFAULT_MAX_MAPPED_FILES
from commitlake.schemas.remoting.frames import MAX_FRAME_BYTES

DEFAULT_CONNECTIONS_OF_ONE = 5_000
"""Connections from one address, including loopback: a quarter of all."""
RESERVED = DEFAULT_MAX_MAPPED_FILES + 64
"""File descriptors for mapped files and files that are opened briefly."""
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PortLimits:
    """Limits on connections, memory and times of one port.

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


def raise_descriptor_limit(connections: int) -> None:
    """Raise the limit on file descriptors for a number of connections, as far as the system allows.

    Args:
        connections: maximum number of connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        # Some systems have a further limit besides the two that they report.
        _logger.warning("cannot raise the limit on file descriptors from %d to %d: %s", soft, wanted, error)


def is_reserved_descriptor(descriptor: int) -> bool:
    """Return whether a file descriptor is one of those that are kept free for the server's own files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft != resource.RLIM_INFINITY and descriptor >= soft - min(RESERVED, soft // 2)
