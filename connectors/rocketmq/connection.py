"""A TCP connection to a broker or name server, shared by threads.

Each caller writes a whole frame; frames do not interleave. The connection has a thread that reads answers and passes
them to the waiting callers; it never waits for a caller. Every wait has a time limit: connecting, writing and waiting
for an answer. An idle connection is closed after a while, before the server closes it.

With TLS, a lock makes encrypting and decrypting exclusive, because OpenSSL allows only one of them at a time; bytes are
sent and received without the lock.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from commitlake.connectors.rocketmq.errors import (
    BrokenConnectionError,
    ProtocolError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.options import ClientOptions, split_address
from commitlake.connectors.rocketmq.pending_requests import PendingRequests
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.tls import TlsStream

IDLE_SECONDS = 100.0
"""Idle time after which a connection is closed; RocketMQ's servers close it after 120 s."""
TICK_SECONDS = 0.25
"""Interval of the checks for overdue answers."""
RECEIVE_BYTES = 256 * 1024


class PeerConnection:
    """A TCP connection to one peer.

    Attributes:
        address: the peer, `host:port`.
    """

    def __init__(
        self,
        address: str,
        options: ClientOptions,
        on_request: Callable[[str, Command], None],
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Connect to a peer.

        Args:
            address: `host:port`.
            options: time limits.
            on_request: called by the reading thread with requests of the peer; it must not block.
            tls: TLS settings; None for plain text.

        Raises:
            UnreachableError: if there is no connection in time, or the server's certificate is refused.
        """
        self.address = address
        self._options = options
        self._on_request = on_request
        self._writing = threading.Lock()
        self._lock = threading.Lock()  # never held while waiting, because the reading thread needs it
        self._exchange: PendingRequests[Future[Command]] = PendingRequests(options.frame_limit_bytes)
        self._problem: RocketMQError | None = None
        self._last_use = time.monotonic()
        try:
            self._socket = socket.create_connection(split_address(address), timeout=options.connect_seconds)
        except (OSError, ValueError) as error:  # ValueError for a host that is not a valid name
            raise UnreachableError(
                f"{address}: cannot connect within {options.connect_seconds} s: {error}"
            ) from None  # fmt: skip
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = None if tls is None else self._perform_handshake(tls)
        self._socket.settimeout(options.request_seconds)
        threading.Thread(target=self._run_reader, name=f"rocketmq {address}", daemon=True).start()

    def _perform_handshake(self, context: ssl.SSLContext) -> TlsStream:
        seconds = self._options.connect_seconds
        deadline = time.monotonic() + seconds
        try:
            stream = TlsStream(context, is_server=False, server_name=split_address(self.address)[0])
            while True:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                self._socket.sendall(stream.take_output())
                if stream.is_established:
                    return stream
                self._receive_handshake_bytes(stream)
        except (OSError, ValueError) as error:
            self._socket.close()
            found = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
            raise UnreachableError(
                f"{self.address}: expected a TLS handshake within {seconds} s, found {found}"
            ) from None

    def _receive_handshake_bytes(self, stream: TlsStream) -> None:
        if not (data := self._socket.recv(RECEIVE_BYTES)):
            raise OSError("the server closed the connection during the TLS handshake: check its TLS settings")
        try:
            stream.receive(data)
        except ssl.SSLError:
            with contextlib.suppress(OSError):
                self._socket.sendall(stream.take_output())  # send the TLS alert
            raise

    @property
    def is_open(self) -> bool:
        """Return True if the connection can still be used."""
        return self._problem is None

    def send_request(self, command: Command, timeout_seconds: float) -> Future[Command]:
        """Send a request, and return a future of its answer.

        Raises:
            UnreachableError: if the connection is broken.
            UnserializableError: if the command is too large for a frame.
        """
        answer: Future[Command] = Future()
        answer.set_running_or_notify_cancel()  # a sent request cannot be cancelled
        # Frames are written in the order in which they are numbered and encrypted, so nothing may come between. `_lock`
        # is free during the write, because the reading thread needs it.
        with self._writing:
            with self._lock:
                self._check_open()
                data = self._encrypt(
                    self._exchange.register_request(command, answer, time.monotonic() + timeout_seconds)
                )
            self._write(data)
        return answer

    def send_one_way(self, command: Command) -> None:
        """Send a one-way request, for which the peer sends no answer.

        Raises:
            UnreachableError: if the connection is broken.
            UnserializableError: if the command is too large for a frame.
        """
        with self._writing:
            with self._lock:
                self._check_open()
                data = self._encrypt(self._exchange.serialize_one_way(command))
            self._write(data)

    def close(self) -> None:
        """Close the connection; requests without an answer get an error."""
        self._fail_requests(UnreachableError(f"{self.address}: the connection was closed by this client"))

    def _check_open(self) -> None:
        if self._problem is not None:
            raise BrokenConnectionError(str(self._problem))

    def _encrypt(self, data: bytes) -> bytes:
        """Encrypt bytes for sending; the caller holds the lock."""
        if self._tls is None:
            return data
        try:
            self._tls.send(data)
        except ssl.SSLError as error:
            self._problem = self._problem or self._make_broken_error(error)
            self._shut_socket()
            raise self._problem from None
        return self._tls.take_output()

    def _write(self, data: bytes) -> None:
        self._last_use = time.monotonic()
        try:
            self._socket.sendall(data)
        except OSError as error:
            # A part of a frame may have been sent, so the connection is unusable; the reading thread closes it.
            problem = BrokenConnectionError(f"{self.address}: expected to send {len(data)} bytes, found {error}")
            self._problem = self._problem or problem
            self._shut_socket()
            raise BrokenConnectionError(str(self._problem)) from None

    def _shut_socket(self) -> None:
        with contextlib.suppress(OSError):  # the peer has closed it already
            self._socket.shutdown(socket.SHUT_RDWR)

    def _fail_requests(self, problem: RocketMQError) -> None:
        with self._lock:
            self._problem = self._problem or problem
            waiting = self._exchange.abandon_requests()
        self._shut_socket()
        for answer in waiting:
            answer.set_exception(self._problem)

    def _run_reader(self) -> None:
        with self._socket:  # closed after the reason is known
            self._read_until_closed()

    def _read_until_closed(self) -> None:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                space = memoryview(bytearray(RECEIVE_BYTES))
                while self._problem is None:
                    if selector.select(TICK_SECONDS):
                        self._receive_commands(space)
                    self._expire_requests()
        except OSError as error:
            self._fail_requests(self._make_broken_error(error))
        except LayoutError as error:
            self._fail_requests(ProtocolError(f"{self.address}: expected RocketMQ's remoting protocol, found {error}"))
        finally:
            self._fail_requests(UnreachableError(f"{self.address}: the connection was closed"))

    def _receive_commands(self, buffer: memoryview) -> None:
        size = self._socket.recv_into(buffer)
        if not size:
            raise OSError("the server closed the connection: check the server's log, or try again")
        with self._lock:
            self._last_use = time.monotonic()
            plain = self._decrypt(buffer[:size])
            answers, requests = self._exchange.receive(plain)
        # Without the lock: callbacks of a future run here, and may send another request.
        for answer, command in answers:
            answer.set_result(command)
        for request in requests:
            self._on_request(self.address, request)

    def _decrypt(self, data: memoryview) -> bytes | memoryview:
        """Decrypt received bytes; the caller holds the lock."""
        if self._tls is None:
            return data
        try:
            return self._tls.receive(data)
        except ssl.SSLError as error:
            # Recorded before the lock is released, because the next sender would only find a closed session.
            self._problem = self._problem or self._make_broken_error(error)
            raise

    def _make_broken_error(self, error: OSError) -> BrokenConnectionError:
        return BrokenConnectionError(f"{self.address}: expected an open connection, found {error}")

    def _expire_requests(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = self._exchange.expire_requests(now)
            is_idle = not self._exchange.pending_count and now - self._last_use > IDLE_SECONDS
        for answer in late:
            answer.set_exception(UnreachableError(f"{self.address}: expected an answer in time, found none"))
        if is_idle:
            self._fail_requests(BrokenConnectionError(f"{self.address}: the connection was idle and is closed"))
