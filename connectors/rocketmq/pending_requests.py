"""The protocol state of a client's connection, without sockets: bytes come in, bytes and answers come out.

Requests are numbered, and wait for their answers, which may arrive in any order. A broker also sends requests, with its
own numbers, so bit 0 of the flag distinguishes requests from answers, not the number. No sockets, threads or clocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from commitlake.schemas.remoting.frames import (
    FLAG_ONE_WAY,
    MAX_FRAME_BYTES,
    Command,
    parse_command,
    serialize_command,
)

T = TypeVar("T")

_OPAQUE_MASK = 0x7FFFFFFF


class PendingRequest(NamedTuple, Generic[T]):
    """A sent request that has no answer yet.

    Attributes:
        ticket: object that the caller gets back with the answer.
        deadline: time after which the answer is ignored, on the caller's clock.
    """

    ticket: T
    deadline: float


class PendingRequests(Generic[T]):
    """The requests of one connection that have no answer yet; not thread-safe."""

    def __init__(self, frame_limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self._limit = frame_limit_bytes
        self._waiting: dict[int, PendingRequest[T]] = {}
        self._next_opaque = 0
        self._buffer = bytearray()

    @property
    def pending_count(self) -> int:
        """Return the number of requests without an answer."""
        return len(self._waiting)

    def register_request(self, command: Command, ticket: T, deadline: float) -> bytes:
        """Register a request as waiting for its answer, and return the bytes to send.

        Raises:
            UnserializableError: if the command is too large for a frame; nothing waits then.
        """
        self._next_opaque = opaque = (self._next_opaque + 1) & _OPAQUE_MASK
        data = serialize_command(replace(command, opaque=opaque))
        self._waiting[opaque] = PendingRequest(ticket, deadline)
        return data

    def serialize_one_way(self, command: Command) -> bytes:
        """Return the bytes to send for a one-way request.

        Raises:
            UnserializableError: if the command is too large for a frame.
        """
        self._next_opaque = opaque = (self._next_opaque + 1) & _OPAQUE_MASK
        return serialize_command(replace(command, opaque=opaque, flag=command.flag | FLAG_ONE_WAY))

    def receive(self, data: bytes | memoryview) -> tuple[list[tuple[T, Command]], list[Command]]:
        """Process received bytes. Return the complete answers, each with its request's ticket, and the peer's requests.

        Answers without a pending request are dropped.

        Raises:
            LayoutError: if the peer violates the protocol; then the connection is unusable.
        """
        buffer = self._buffer
        buffer += data
        answers: list[tuple[T, Command]] = []
        requests: list[Command] = []
        position = 0
        while (parsed := parse_command(buffer, position, self._limit)) is not None:
            command, size = parsed
            position += size
            if not command.is_response:
                requests.append(command)
            elif (waiting := self._waiting.pop(command.opaque, None)) is not None:
                answers.append((waiting.ticket, command))
        # Once for all commands: each deletion moves the rest of the buffer.
        if position:
            del buffer[:position]
        return answers, requests

    def expire_requests(self, now: float) -> list[T]:
        """Remove requests whose deadline has passed, and return their tickets; late answers will be ignored."""
        late = [opaque for opaque, waiting in self._waiting.items() if waiting.deadline <= now]
        return [self._waiting.pop(opaque).ticket for opaque in late]

    def abandon_requests(self) -> list[T]:
        """Remove all pending requests because the connection broke, and return their tickets."""
        tickets = [waiting.ticket for waiting in self._waiting.values()]
        self._waiting.clear()
        return tickets
