"""A peer with faults that real servers do not show on demand: silence, false answers, closed connections."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from commitlake.schemas.remoting.frames import Command, parse_command, serialize_command

Answering = Callable[[Command], bytes | None]


def reply(command: Command, code: int = 0, body: bytes = b"", remark: str | None = None, **fields: str) -> bytes:
    """Return the frame of an answer."""
    return serialize_command(command.reply(code, fields, body, remark))


class Peer:
    """A listener on the loopback address that answers each request with bytes, or closes the connection for None.

    Attributes:
        on_end: called by a connection's thread at its end.
        received: all requests so far.
        connections: number of connections so far.
    """

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self.on_end: Callable[[], None] = lambda: None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.received: list[Command] = []
        self.connections = 0

    @property
    def address(self) -> str:
        """Return its `ip:port`."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        """Start listening."""
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def push(self, data: bytes) -> None:
        """Send bytes over the last connection."""
        self._sockets[-1].sendall(data)

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected = self._listener.accept()[0]
                self.connections += 1
                self._sockets.append(connected)
                self._start(lambda connected=connected: self._serve(connected))  # type: ignore[misc]

    def _serve(self, connected: socket.socket) -> None:
        try:
            self._serve_all(connected)
        finally:
            self.on_end()

    def _serve_all(self, connected: socket.socket) -> None:
        buffer = bytearray()
        with contextlib.suppress(OSError), connected:
            while data := connected.recv(65536):
                buffer += data
                while (parsed := parse_command(buffer)) is not None:
                    command, size = parsed
                    del buffer[:size]
                    self.received.append(command)
                    answer = self._answer(command)
                    if answer is None:
                        return
                    connected.sendall(answer)
