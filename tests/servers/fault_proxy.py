"""A proxy in front of a real HTTP server with faults of networks and busy servers on demand.

    with FaultProxy(server.address) as proxy:
        proxy.inject(Fault.ANSWER_503, times=3)
        ...  # the client talks to proxy.endpoint
    proxy.seen  # the requests, as they came

A request that meets no fault goes to the server as it came, byte by byte, on a connection of its own. The proxy runs in
threads of this process: a client that keeps Python's lock while it waits (deltalake does) needs a process of its own.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Self

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_BUSY_BODY = b'<?xml version="1.0"?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>'
_BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_BUSY_BODY), _BUSY_BODY)
_DENIED_BODY = b'{"error": {"code": 403, "message": "denied", "errors": [{"reason": "forbidden"}]}}'
_DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
    len(_DENIED_BODY),
    _DENIED_BODY,
)


class Fault(Enum):
    """A fault of one request."""

    ANSWER_503 = auto()
    """The server does not see the request; the client is told to slow down."""

    ANSWER_403 = auto()
    """The server does not see the request; the client is refused, in the words of Google Cloud Storage."""

    DROP_REQUEST = auto()
    """The connection ends before the server sees the request."""

    LOSE_ANSWER = auto()
    """The server has done the request; the connection ends before its answer."""

    CUT_BODY = auto()
    """Half of the answer's body comes, then the connection ends."""

    SLOW_ANSWER = auto()
    """The answer's body comes in four pieces with a wait of `SLOW_SECONDS` before each."""

    IGNORE_RANGE = auto()
    """The answer holds the whole object, as that of a server which does not know ranges."""

    WRONG_RANGE = auto()
    """The answer does not say which bytes it holds, as that of a server which does not know ranges."""


SLOW_SECONDS = 0.3


@dataclass
class _Plan:
    fault: Fault
    times: int
    applies: Callable[[str], bool]


class FaultProxy:
    """The proxy, with a thread for each connection.

    Attributes:
        seen: The first line of each request, faults or none.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        """Describe the proxy; entering the context starts it.

        Args:
            server: Where requests go.
        """
        self.seen: list[str] = []
        self._server = server
        self._plans: list[_Plan] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def endpoint(self) -> str:
        """The URL that clients are given."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def inject(self, fault: Fault, times: int = 1, request: str = "") -> None:
        """Inject a fault into the next requests.

        Args:
            fault: What happens.
            times: To how many of them.
            request: A regular expression that their first line matches somewhere, as `^PUT .*partNumber=2`.
        """
        pattern = re.compile(request)
        with self._lock:
            self._plans.append(_Plan(fault, times, lambda line: pattern.search(line) is not None))

    @property
    def unused(self) -> int:
        """Number of injected faults that no request has met."""
        with self._lock:
            return sum(plan.times for plan in self._plans)

    def __enter__(self) -> Self:
        """Start listening."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Answer one request; the client connects again for the next one."""
        with client:
            try:
                self._answer(client)
            except OSError:
                return  # one of the two has ended, which is what a network looks like, too

    def _answer(self, client: socket.socket) -> None:
        head, rest = _read_head(client)
        line = head.split(b"\r\n", 1)[0].decode(errors="replace")
        if not line:
            return
        fault = self._fault_of(line)
        if b"\r\nexpect: 100-continue" in head.lower():
            client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"\r\nexpect: 100-continue", b"", head, flags=re.IGNORECASE)
        length = _LENGTH.search(head)
        body = rest + _read_exactly(client, (int(length[1]) if length else 0) - len(rest))
        match fault:
            case Fault.ANSWER_503:
                client.sendall(_BUSY)
            case Fault.ANSWER_403:
                client.sendall(_DENIED)
            case Fault.DROP_REQUEST:
                pass
            case _:
                self._pass_on(client, head, body, fault)

    def _fault_of(self, line: str) -> Fault | None:
        with self._lock:
            self.seen.append(line)
            for plan in self._plans:
                if plan.times and plan.applies(line):
                    plan.times -= 1
                    return plan.fault
        return None

    def _pass_on(self, client: socket.socket, head: bytes, body: bytes, fault: Fault | None) -> None:
        head = re.sub(rb"\r\nconnection: [^\r]*", b"", head, flags=re.IGNORECASE)
        if fault is Fault.IGNORE_RANGE:
            head = re.sub(rb"\r\nrange: [^\r]*", b"", head, flags=re.IGNORECASE)
        with socket.create_connection(self._server) as server:
            server.sendall(head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body)
            answer_head, rest = _read_head(server)
            if fault is Fault.LOSE_ANSWER:
                return
            length = _LENGTH.search(answer_head)
            bodiless = head.startswith(b"HEAD ") or length is None
            answer = rest if bodiless else rest + _read_exactly(server, int(length[1]) - len(rest))  # type: ignore[index]
            if bodiless:
                while piece := server.recv(1 << 16):
                    answer += piece
        if fault is Fault.WRONG_RANGE:
            answer_head = re.sub(rb"\r\ncontent-range: [^\r]*", b"", answer_head, flags=re.IGNORECASE)
        client.sendall(answer_head)
        if fault is Fault.CUT_BODY:
            client.sendall(answer[: len(answer) // 2])
        elif fault is Fault.SLOW_ANSWER:
            for quarter in range(4):
                time.sleep(SLOW_SECONDS)
                client.sendall(answer[quarter * len(answer) // 4 : (quarter + 1) * len(answer) // 4])
        else:
            client.sendall(answer)


def _read_head(peer: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a message with its empty line, and the part of the body received with it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = peer.recv(1 << 16)
        if not piece:
            return b"", b""
        data += piece
    end = data.index(b"\r\n\r\n") + 4
    return data[:end], data[end:]


def _read_exactly(peer: socket.socket, length: int) -> bytes:
    pieces = []
    while length > 0:
        piece = peer.recv(min(length, 1 << 20))
        if not piece:
            raise ConnectionResetError
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
