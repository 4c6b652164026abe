"""Connections to a port: received bytes are passed to a service as requests, and answers are sent to the clients.

All frames of one read are handled at once, and their answers are sent in one write, up to a limit. If a client does not
read its answers, the server stops reading from it, and its requests wait; if too much stays unread, its connection is
closed. A client that sends many requests at once is served for some milliseconds, then other clients have their turn.

The memory of all connections together is limited, too: incomplete frames, requests that wait for their turn, and
answers that wait to be read. See `PortLimits`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from typing import Protocol, cast

from commitlake.broker_lite.broker.limits import LimitedLog
from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.server.connection_transport import ConnectionCodec, ConnectionCodecError
from commitlake.broker_lite.server.limits import PortLimits, is_reserved_descriptor
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.tls import ServerTls

TURN_SECONDS = 0.01
"""Longest time for which one connection's requests are handled before others have their turn."""
_SMALL_BYTES = 64 << 10
"""Unsent bytes of a connection that are too few to be counted."""
_COMMAND_BYTES = 500
"""Approximate memory of a request besides its body."""
_logger = logging.getLogger(__name__)


class Service(Protocol):
    """Interface for the handler of requests on a port."""

    def handle(self, channel: Channel, request: Command) -> None:
        """Handle a request, and answer it over the channel."""

    def after_requests(self) -> None:
        """Finish a group of handled requests, for example by answering waiting pulls."""

    def on_connection_lost(self, channel: Channel) -> None:
        """Clean up after a closed connection."""


class Connections:
    """All connections of one port."""

    def __init__(
        self, service: Service, limits: PortLimits, loop: asyncio.AbstractEventLoop, tls: ServerTls | None = None
    ) -> None:
        self.service = service
        self.limits = limits
        self.loop = loop
        self.tls = tls
        self.is_ending = False
        self.log = LimitedLog(_logger, loop.time)
        self._open: dict[Connection, None] = {}
        self._by_address: Counter[bytes] = Counter()
        self._unfinished: dict[Connection, int] = {}
        self._unfinished_bytes = 0
        self._kept_bytes = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection, peer: Host, descriptor: int) -> bool:
        """Add a new connection, and return whether the limits allow it."""
        if (
            len(self) >= self.limits.connections
            or self._by_address[peer.network_prefix] >= self.limits.connections_of_one
        ):
            self.log.warning("refused a connection from %s: too many connections", peer)
            return False
        # The store must always be able to open its files: a failed flush would make it unusable.
        if is_reserved_descriptor(descriptor):
            self.log.warning("refused a connection from %s: the last file descriptors are for the store", peer)
            return False
        self._open[connection] = None
        self._by_address[peer.network_prefix] += 1
        return True

    def discard(self, connection: Connection, peer: Host) -> None:
        """Remove a closed connection."""
        if connection in self._open:
            del self._open[connection]
            self._by_address[peer.network_prefix] -= 1
            if not self._by_address[peer.network_prefix]:
                del self._by_address[peer.network_prefix]
        self._unfinished_bytes -= self._unfinished.pop(connection, 0)

    def note_incomplete_frame(self, connection: Connection, size: int, *, is_new: bool) -> None:
        """Count bytes of incomplete frames; above the limit, close the connections whose frames began first.

        Args:
            size: received bytes of the incomplete frame, 0 if there is none.
            is_new: True if the frame has just begun.
        """
        known = self._unfinished.get(connection, 0)
        self._unfinished_bytes += size - known
        if is_new or not size:
            self._unfinished.pop(connection, None)
        if size:
            # A dict keeps the order of insertion, so the first connection has the oldest frame.
            self._unfinished[connection] = size
        while self._unfinished_bytes > self.limits.unfinished_bytes:
            oldest = next(iter(self._unfinished))
            self.log.warning(
                "closed the connection to %s: too many bytes of incomplete frames, and its frame is the oldest", oldest
            )
            self._unfinished_bytes -= self._unfinished.pop(oldest)
            oldest.abort()

    def note_memory_change(self, byte_change: int) -> None:
        """Update the memory used for requests and answers; if it is too much, close the connections that use most."""
        self._kept_bytes += byte_change
        if byte_change <= 0 or self._kept_bytes <= self.limits.memory_bytes:
            return
        # Connections may have sent answers since they were last counted.
        for connection in self._open:
            self._kept_bytes += connection.recount_memory()
        while self._kept_bytes > self.limits.memory_bytes and self._open:
            greediest = max(self._open, key=lambda connection: connection.kept_bytes)
            if not greediest.kept_bytes:
                return
            size = greediest.kept_bytes
            self.log.warning("closed the connection to %s: %d of too many waiting bytes are its own", greediest, size)
            greediest.abort()

    def close_idle_connections(self) -> None:
        """Close connections that are idle, or whose frame or TLS handshake takes too long."""
        self.log.log_suppressed_warnings()
        now = self.loop.time()
        oldest = now - self.limits.idle_seconds
        oldest_handshake = now - self.limits.handshake_seconds
        for connection in [one for one in self._unfinished if one.is_frame_late(now - self.limits.frame_seconds)]:
            seconds = self.limits.frame_seconds
            self.log.warning("closed the connection to %s: its frame took longer than %d s", connection, seconds)
            connection.abort()
        for connection in list(self._open):
            is_late = connection.is_in_handshake and connection.handshake_at < oldest_handshake
            if is_late or connection.active_at < oldest:
                connection.close()

    def stop_reading(self) -> None:
        """Stop reading requests from all connections."""
        self.is_ending = True
        for connection in self._open:
            connection.stop_reading()

    def close(self) -> None:
        """Close all connections after their answers have been sent."""
        for connection in list(self._open):
            connection.close()

    @property
    def has_waiting_requests(self) -> bool:
        """True if received requests are waiting to be handled."""
        return any(connection.has_turn_later for connection in self._open)

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that wait to be sent, because clients do not read their answers."""
        return sum(connection.unsent_bytes for connection in self._open)


class Connection(asyncio.Protocol):
    """Connection to one client of the server.

    Attributes:
        active_at: time of the last traffic, by the loop's clock.
        handshake_at: start of the TLS handshake, by the same clock: the time of the connection, or of its first byte.
        has_turn_later: True if the handling of read requests continues after other connections have had their turn.
        kept_bytes: memory of its waiting requests and unread answers.
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
        self._wire = ConnectionCodec(connections.tls, self._send_bytes)
        self.has_turn_later = False
        self._frame_began_at = 0.0
        self.active_at = self.handshake_at = connections.loop.time()
        self.kept_bytes = 0

    def __str__(self) -> str:
        return str(self._channel.peer) if self._channel is not None else "a peer"

    @property
    def is_in_handshake(self) -> bool:
        """True if a TLS handshake must complete before anything else."""
        return self._wire.is_in_handshake

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection, unless there are too many."""
        self._transport = cast("asyncio.Transport", transport)
        ip, port = transport.get_extra_info("peername")[:2]
        peer = Host.of(ip.partition("%")[0], port)
        if not self._connections.add(self, peer, transport.get_extra_info("socket").fileno()):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(self._connections.limits.unread_bytes)
        self._channel = Channel(peer, self._queue_frame, self.close)

    def data_received(self, data: bytes) -> None:
        """Decode received bytes, and handle the requests in them."""
        if self._channel is None or self._transport is None or self._transport.is_closing():
            return
        self.active_at = self._connections.loop.time()
        if self._wire.is_new:
            self.handshake_at = self.active_at
        before = self._reader.incomplete_frame_size
        try:
            plain = self._wire.receive(data)
            self._channel.is_encrypted = self._wire.is_encrypted
            commands = self._reader.feed(plain)
        except ConnectionCodecError as error:
            self._connections.log.warning("closed the connection to %s: %s", self._channel.peer, error)
            # Not aborted, because an alert with the reason, which TLS has just written, is still to be sent.
            self._transport.close()
            return
        except LayoutError as error:
            self._connections.log.warning("closed the connection to %s: %s", self._channel.peer, error)
            self.abort()
            return
        if before or self._reader.incomplete_frame_size:
            is_new = bool(commands) or not before
            self._frame_began_at = self.active_at if is_new else self._frame_began_at
            self._connections.note_incomplete_frame(self, self._reader.incomplete_frame_size, is_new=is_new)
        self._pending.extend(commands)
        if not self.has_turn_later:
            self._handle_requests()
        self._close_if_tls_ended()

    def _close_if_tls_ended(self) -> None:
        """Close the connection after its client has ended TLS and all of its requests are handled."""
        if self._wire.has_peer_ended_tls and not self.has_turn_later:
            self.close()

    def _send_bytes(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def is_frame_late(self, latest_start_time: float) -> bool:
        """Return whether the incomplete frame began before `latest_start_time`; False while reading is paused."""
        return self._frame_began_at < latest_start_time and not self._is_paused

    def _handle_requests(self) -> None:
        """Handle waiting requests until the time of a turn is over, or too many answers are unread."""
        end = time.perf_counter() + TURN_SECONDS
        while self._pending and not self._is_paused and self._channel is not None:
            self._is_handling = True
            try:
                while self._pending and self._out_bytes < self._connections.limits.unread_bytes:
                    command = self._pending.popleft()
                    if command.is_response:
                        self._channel.deliver_answer(command)
                    else:
                        self._service.handle(self._channel, command)
                    if time.perf_counter() >= end:
                        break
                self._service.after_requests()
            finally:
                self._is_handling = False
            self._flush_answers()
            if self._pending and not self._is_paused and time.perf_counter() >= end:
                self._continue_requests_later()
                break
        if self._pending or self.kept_bytes:
            self._connections.note_memory_change(self.recount_memory())

    def _continue_requests_later(self) -> None:
        """Handle the remaining requests after other connections have had a turn; until then, stop reading."""
        self.has_turn_later = True
        self.stop_reading()
        self._connections.loop.call_soon(self._handle_remaining_requests)

    def _handle_remaining_requests(self) -> None:
        self.has_turn_later = False
        self._handle_requests()
        self._resume_reading()
        self._close_if_tls_ended()

    def _resume_reading(self) -> None:
        is_open = self._transport is not None and not self._transport.is_closing()
        if is_open and not (self._is_paused or self.has_turn_later or self._connections.is_ending):
            cast("asyncio.Transport", self._transport).resume_reading()

    def recount_memory(self) -> int:
        """Recount the memory for waiting requests and unread answers, and return the difference to the last count."""
        waiting = sum(len(command.body) + _COMMAND_BYTES for command in self._pending)
        before, self.kept_bytes = self.kept_bytes, waiting + self.unsent_bytes
        return self.kept_bytes - before

    def _queue_frame(self, frame: bytes) -> None:
        # Answers outside of a turn, such as those to held pulls, are joined and written in the next round of the loop.
        if not self._out and not self._is_handling:
            self._connections.loop.call_soon(self._flush_answers)
        self._out.append(frame)
        self._out_bytes += len(frame)

    def _flush_answers(self) -> None:
        out, self._out, self._out_bytes = self._out, [], 0
        if not out or self._transport is None or self._transport.is_closing():
            return
        self.active_at = self._connections.loop.time()
        try:
            self._wire.send(out[0] if len(out) == 1 else b"".join(out))
        except ConnectionCodecError as error:
            self._connections.log.warning("closed the connection to %s: %s", self, error)
            self.abort()
            return
        unsent = self.unsent_bytes
        if unsent > self._connections.limits.unsent_bytes:
            self._connections.log.warning("closed the connection to %s: it has not read %d bytes", self, unsent)
            self.abort()
        elif unsent > _SMALL_BYTES or self.kept_bytes:
            self._connections.note_memory_change(self.recount_memory())

    def pause_writing(self) -> None:
        """Pause this connection's requests, because the client does not read its answers."""
        self._is_paused = True
        if self._channel is not None:
            self._channel.is_congested = True
        self.stop_reading()

    def resume_writing(self) -> None:
        """Resume this connection's requests, because the client has read its answers."""
        self._is_paused = False
        if self._channel is not None:
            self._channel.is_congested = False
        if not self.has_turn_later:
            self._handle_requests()
        self._connections.note_memory_change(self.recount_memory())
        self._resume_reading()

    def stop_reading(self) -> None:
        """Stop reading from the connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def abort(self) -> None:
        """Close the connection at once, and drop waiting requests."""
        self._free_memory()
        self._connections.note_memory_change(-self.kept_bytes)
        self.kept_bytes = 0
        if self._transport is not None:
            self._transport.abort()

    def _free_memory(self) -> None:
        """Free the memory of requests and answers: the object itself may stay until the next garbage collection."""
        self._pending.clear()
        self._out, self._out_bytes = [], 0
        self._reader = FrameReader(self._connections.limits.frame_bytes)

    def close(self) -> None:
        """Close the connection after its answers have been sent."""
        if self._transport is not None:
            self._flush_answers()
            self._wire.end_tls()
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the reason does not matter)
        """Remove the closed connection, and tell the service."""
        self._free_memory()
        channel, self._channel = self._channel, None
        if channel is not None:
            self._connections.discard(self, channel.peer)
            self._connections.note_memory_change(-self.kept_bytes)
            self.kept_bytes = 0
            channel.on_connection_lost()
            self._service.on_connection_lost(channel)

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that wait to be sent, because the client does not read its answers."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0
