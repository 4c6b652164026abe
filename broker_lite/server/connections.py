"""Connections: bytes from the network to a service's handlers, and their answers back.

All frames that one read brings are handled at once, and all their answers go out in one write, up to a limit. Who does
not read what is sent is not read from either, and what it has asked waits; who leaves too much lying is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from typing import Protocol, cast

from broker_lite.protocol import Channel, FrameReader
from broker_lite.server.descriptors import is_reserved
from broker_lite.server.limits import Limits
from broker_lite.server.wire import Wire, WireError
from schemas.layouts.errors import LayoutError
from schemas.layouts.hosts import Host
from schemas.layouts.remoting import Command
from schemas.remoting.tls_contexts import ServerTls

_logger = logging.getLogger(__name__)


class Service(Protocol):
    """What answers on a port."""

    def handle(self, channel: Channel, request: Command) -> None:
        """Do what a request asks, and answer it by the channel."""

    def handled(self) -> None:
        """Do what some handled requests leave to do."""

    def lost(self, channel: Channel) -> None:
        """Note that a connection has ended."""


class Connections:
    """All connections of one port."""

    def __init__(
        self, service: Service, limits: Limits, loop: asyncio.AbstractEventLoop, tls: ServerTls | None = None
    ) -> None:
        self.service = service
        self.limits = limits
        self.loop = loop
        self.tls = tls
        self._open: dict[Connection, None] = {}
        self._by_address: Counter[bytes] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection, peer: Host, descriptor: int) -> bool:
        """Note a new connection; tells whether there may be one more."""
        if len(self) >= self.limits.connections or self._by_address[peer.address] >= self.limits.connections_of_one:
            _logger.warning("a connection from %s is refused: there are too many", peer)
            return False
        if is_reserved(descriptor):
            _logger.warning("a connection from %s is refused: the store needs the last file descriptors", peer)
            return False
        self._open[connection] = None
        self._by_address[peer.address] += 1
        return True

    def discard(self, connection: Connection, peer: Host) -> None:
        """Note that a connection has ended."""
        if connection in self._open:
            del self._open[connection]
            self._by_address[peer.address] -= 1
            if not self._by_address[peer.address]:
                del self._by_address[peer.address]

    def close_idle(self) -> None:
        """Close the connections on which nothing has moved for long, or no TLS handshake was done in time."""
        now = self.loop.time()
        oldest = now - self.limits.idle_seconds
        oldest_handshake = now - self.limits.handshake_seconds
        for connection in list(self._open):
            is_late = connection.is_shaking_hands and connection.handshake_at < oldest_handshake
            if is_late or connection.active_at < oldest:
                connection.close()

    def stop_reading(self) -> None:
        """Take no more requests."""
        for connection in self._open:
            connection.stop_reading()

    def close(self) -> None:
        """Close all, once what was sent is on the way."""
        for connection in list(self._open):
            connection.close()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for their peers to read."""
        return sum(connection.unsent_bytes for connection in self._open)


class Connection(asyncio.Protocol):
    """One connection.

    Attributes:
        active_at: when something has moved on it, by the loop's clock.
        handshake_at: when a TLS handshake could begin, by the same clock: with the connection, or its first byte.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._service = connections.service
        self._reader = FrameReader(connections.limits.frame_bytes)
        self._transport: asyncio.Transport | None = None
        self._channel: Channel | None = None
        self._pending: deque[Command] = deque()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_handling = False
        self._is_paused = False
        self._wire = Wire(connections.tls, self._send_bytes)
        self.active_at = self.handshake_at = connections.loop.time()

    @property
    def is_shaking_hands(self) -> bool:
        """Whether a TLS handshake is to be done before anything else."""
        return self._wire.is_shaking_hands

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        ip, port = transport.get_extra_info("peername")[:2]
        peer = Host.of(ip.partition("%")[0], port)
        if not self._connections.add(self, peer, transport.get_extra_info("socket").fileno()):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(self._connections.limits.unread_bytes)
        self._channel = Channel(peer, self._write, self.close)

    def data_received(self, data: bytes) -> None:
        """Handle what has come."""
        if self._channel is None or self._transport is None or self._transport.is_closing():
            return
        self.active_at = self._connections.loop.time()
        if self._wire.is_new:
            self.handshake_at = self.active_at
        try:
            plain = self._wire.receive(data)
            self._channel.is_encrypted = self._wire.is_encrypted
            self._pending.extend(self._reader.feed(plain))
        except WireError as error:
            _logger.warning("%s is cut off: %s", self._channel.peer, error)
            self._transport.close()
            return
        except LayoutError as error:
            _logger.warning("%s is cut off: %s", self._channel.peer, error)
            self._transport.abort()
            return
        self._work()
        if self._wire.is_ended:
            self.close()

    def _send_bytes(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _work(self) -> None:
        """Handle what has come, as long as the peer takes the answers."""
        while self._pending and not self._is_paused and self._channel is not None:
            self._is_handling = True
            try:
                while self._pending and self._out_bytes < self._connections.limits.unread_bytes:
                    command = self._pending.popleft()
                    if command.is_response:
                        self._channel.take_answer(command)
                    else:
                        self._service.handle(self._channel, command)
                self._service.handled()
            finally:
                self._is_handling = False
            self._flush()

    def _write(self, frame: bytes) -> None:
        if not self._out and not self._is_handling:
            self._connections.loop.call_soon(self._flush)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def _flush(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if not out or self._transport is None or self._transport.is_closing():
            return
        self.active_at = self._connections.loop.time()
        self._wire.send(out[0] if len(out) == 1 else b"".join(out))
        if self.unsent_bytes > self._connections.limits.unsent_bytes:
            _logger.warning("a peer is cut off: it leaves %d bytes unread", self.unsent_bytes)
            self._transport.abort()

    def pause_writing(self) -> None:
        """The peer is slow: let it read before it asks for more."""
        self._is_paused = True
        self.stop_reading()

    def resume_writing(self) -> None:
        """The peer has read."""
        self._is_paused = False
        self._work()
        if not self._is_paused and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def stop_reading(self) -> None:
        """Take no more bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def close(self) -> None:
        """End the connection when what was sent is on the way."""
        if self._transport is not None:
            self._flush()
            self._wire.end()
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (why makes no difference)
        """Forget the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            self._connections.discard(self, channel.peer)
            channel.lost()
            self._service.lost(channel)

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the peer to read."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0
