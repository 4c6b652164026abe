"""Connection of a server to one client: received bytes to commands, and commands to send.

Requests go both ways. The server numbers its own requests independently of the client's, so only the flag distinguishes
an answer from a request; an answer is passed to the function that waits for its number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from commitlake.schemas.layouts.errors import UnserializableError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import FLAG_ONE_WAY, MAX_FRAME_BYTES, Command, parse_command, serialize_command

MAX_PENDING_REQUESTS = 1024
"""Requests to one peer that may be unanswered; beyond that, the oldest are abandoned."""

_MAX_REMARK = 1000
_logger = logging.getLogger(__name__)

OnAnswer = Callable[[Command | None], None]
"""Function that receives the answer, or None if the peer has closed, owes too many answers, or timed out."""


class Channel:
    """Connection to a peer, over which commands are sent and answered.

    Attributes:
        peer: address of the peer.
        is_open: False after the connection has closed.
        is_congested: True while the peer does not read what was sent: it still gets answers, but no new requests.
        is_encrypted: True if the connection uses TLS.
    """

    __slots__ = ("_close", "_opaque", "_pending", "_write", "is_congested", "is_encrypted", "is_open", "peer")

    def __init__(
        self, peer: Host, write: Callable[[bytes], None], close: Callable[[], None], *, is_encrypted: bool = False
    ) -> None:
        """Create a channel from functions that write and close.

        Args:
            peer: address of the peer.
            write: queues bytes for sending; must not block.
            close: closes the connection.
            is_encrypted: True if the connection uses TLS.
        """
        self.peer = peer
        self.is_open = True
        self.is_congested = False
        self.is_encrypted = is_encrypted
        self._write = write
        self._close = close
        self._opaque = 0
        self._pending: dict[int, OnAnswer] = {}

    @property
    def is_local_or_encrypted(self) -> bool:
        """True if nobody on the network can read or change what is sent: loopback, or TLS."""
        return self.is_encrypted or self.peer.is_loopback

    def send(self, command: Command) -> None:
        """Send a command; do nothing if the connection has closed.

        An answer that does not fit in a frame is replaced by an error, so that the peer neither waits for it nor loses
        the connection. A request that does not fit is dropped.
        """
        if not self.is_open:
            return
        try:
            frame = serialize_command(command)
        except UnserializableError as error:
            _logger.warning("command %d to %s does not fit in a frame: %s", command.code, self.peer, error)
            if not command.is_response:
                return
            frame = serialize_command(
                Command(
                    ResponseCode.SYSTEM_ERROR,
                    remark=f"the answer does not fit in a frame: {error}"[:_MAX_REMARK],
                    opaque=command.opaque,
                    flag=command.flag,
                    serialize_type=command.serialize_type,
                )
            )
        self._write(frame)

    def send_one_way(self, request: Command) -> None:
        """Send a request that needs no answer."""
        if self.is_congested:
            return
        self.send(replace(request, opaque=self._next_opaque(), flag=FLAG_ONE_WAY))

    def ask(self, request: Command, on_answer: OnAnswer) -> int:
        """Send a request, and return its number. `on_answer` is called exactly once, with the answer or None."""
        if len(self._pending) >= MAX_PENDING_REQUESTS:
            self._pending.pop(next(iter(self._pending)))(None)
        opaque = self._next_opaque()
        # The peer reads nothing, so the request would only take memory.
        if self.is_congested:
            on_answer(None)
            return opaque
        self._pending[opaque] = on_answer
        self.send(replace(request, opaque=opaque))
        return opaque

    def stop_waiting_for_answer(self, opaque: int) -> None:
        """Stop waiting for the answer to a request."""
        if on_answer := self._pending.pop(opaque, None):
            on_answer(None)

    def _next_opaque(self) -> int:
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def deliver_answer(self, answer: Command) -> None:
        """Pass an answer to the function that waits for it; drop an answer that nobody waits for."""
        if on_answer := self._pending.pop(answer.opaque, None):
            on_answer(answer)

    def close(self) -> None:
        """Close the connection."""
        if self.is_open:
            self._close()
            self.on_connection_lost()

    def on_connection_lost(self) -> None:
        """Mark the connection as closed, and call all functions that wait for an answer with None."""
        self.is_open = False
        pending, self._pending = self._pending, {}
        for on_answer in pending.values():
            on_answer(None)


class FrameReader:
    """Buffer that splits the bytes of one connection into commands.

    It never holds more than one incomplete frame and the last piece received: a frame's length is checked as soon as
    its first four bytes have arrived.
    """

    def __init__(self, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Command]:
        """Add received bytes to the buffer, and return the commands that are now complete.

        Raises:
            LayoutError: if the bytes are not a valid frame; the connection must be closed.
        """
        buffer: bytes | bytearray = data
        # Most reads end with a whole frame, and are parsed without a copy.
        if self._rest:
            self._rest += data
            buffer = self._rest
        commands = []
        position = 0
        while (parsed := parse_command(buffer, position, self._limit_bytes)) is not None:
            commands.append(parsed[0])
            position += parsed[1]
        if buffer is self._rest:
            del self._rest[:position]
        elif position < len(data):
            self._rest += data[position:] if position else data
        return commands

    @property
    def incomplete_frame_size(self) -> int:
        """Size of the incomplete frame in the buffer."""
        return len(self._rest)
