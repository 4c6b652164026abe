"""All connections of one client: opened on demand, replaced when they break, with signed requests.

Processes do not share these objects: a Spark task creates its own client in its worker.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from commitlake.connectors.rocketmq.connection import TICK_SECONDS, PeerConnection
from commitlake.connectors.rocketmq.errors import (
    BrokenConnectionError,
    ClientOptionError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.options import (
    TLS_CONFIG_VARIABLE,
    ClientOptions,
    environment_credentials,
    split_address,
    tls_context,
)
from commitlake.connectors.unencrypted_connections import warn_unencrypted
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.ext_fields import from_ext_fields, to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import parse_body
from commitlake.schemas.remoting.signing import Credentials, sign_fields

_HEADER = TypeVar("_HEADER", bound=NamedTuple)
_BODY = TypeVar("_BODY", bound=NamedTuple)
_FURTHER_WORKERS = 4
_READ_REPEATS = 3
"""Number of times that a request that changes nothing is sent again after its connection has broken."""

_log = logging.getLogger(__name__)


class Closable(ABC):
    """A client with connections, which are closed at the end of a `with` block."""

    def __enter__(self) -> Self:
        """Enter a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client at the end of the block."""
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class PeerAnswer(NamedTuple):
    """A peer's answer, together with the peer's address for error messages."""

    address: str
    command: Command

    @property
    def code(self) -> int:
        """Return the answer's result code."""
        return self.command.code

    @property
    def body(self) -> bytes:
        """Return the answer's body."""
        return bytes(self.command.body)

    def header_as(self, header_type: type[_HEADER]) -> _HEADER:
        """Return the answer's header as an object of a given class.

        Raises:
            ProtocolError: if the header does not fit the class.
        """
        try:
            return from_ext_fields(header_type, self.command.ext_fields)
        except CommandError as error:
            raise ProtocolError(f"{self.address}: {error}") from None

    def body_as(self, body_type: type[_BODY]) -> _BODY:
        """Return the answer's body as an object of a given class.

        Raises:
            ProtocolError: if the body does not fit the class.
        """
        try:
            return parse_body(body_type, self.command.body)
        except CommandError as error:
            raise ProtocolError(f"{self.address}: {error}") from None

    def check_code(self, accepted_codes: Collection[int] = (ResponseCode.SUCCESS,)) -> PeerAnswer:
        """Return this answer, or raise an error if its code is not an accepted one.

        Raises:
            RefusedError: if the code is another one.
        """
        if self.command.code not in accepted_codes:
            raise RefusedError(self.address, self.command.code, self.command.remark or "")
        return self


class Network:
    """Connections to brokers and name servers by address; thread-safe.

    Attributes:
        options: addresses, time limits and other settings.
        handlers: functions for requests of brokers, by request code; called by threads of this client.
    """

    def __init__(self, options: ClientOptions, credentials: Credentials | None = None) -> None:
        """Create the client without connecting.

        Args:
            options: addresses, time limits and other settings.
            credentials: keys that sign requests; by default those in the environment.

        Raises:
            ClientOptionError: if the environment's credentials, or the TLS settings, are not valid.
        """
        self.options = options
        self.handlers: dict[int, Callable[[str, Command], None]] = {}
        self._credentials = credentials or environment_credentials()
        self._tls = tls_context(options)
        if self._credentials is not None and self._tls is None:
            for address in options.name_server_addresses:
                warn_unencrypted(f"the name server {address}", split_address(address)[0], f"Set {TLS_CONFIG_VARIABLE}")
        self._connections: dict[str, PeerConnection] = {}
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._permits = threading.BoundedSemaphore(options.max_pending)
        self._further = ThreadPoolExecutor(_FURTHER_WORKERS, thread_name_prefix="rocketmq-client")
        self._is_closed = False

    @functools.cached_property
    def local_ip(self) -> str:
        """Return this machine's address on the route to the first name server or broker."""
        host, port = split_address(self.options.first_addresses[0])
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0][0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((host, port))  # connecting a UDP socket sends nothing
                return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"

    @functools.cached_property
    def client_id(self) -> str:
        """Return the id under which brokers list this client."""
        return f"{self.local_ip}@{self.options.instance}#{os.getpid()}#{time.time_ns()}"

    def send_request(
        self,
        address: str,
        code: int,
        header: NamedTuple | None = None,
        body: bytes = b"",
        *,
        fields: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        connection: PeerConnection | None = None,
    ) -> Future[Command]:
        """Send a request, and return a future of its answer.

        Args:
            address: the peer, `host:port`.
            code: a RequestCode.
            body: body of the request.
            fields: arguments that are ext fields already.
            timeout_seconds: time limit for the answer.
            connection: the connection to use; by default, the one that all requests to the address share.

        Raises:
            UnreachableError: if it cannot be sent.
            UnserializableError: if it is too large for a frame.
        """
        allowed = self.options.request_seconds if timeout_seconds is None else timeout_seconds
        command = self._make_command(code, header, body, fields)
        if not self._permits.acquire(timeout=allowed):
            most = self.options.max_pending
            raise UnreachableError(
                f"{address}: the request was not sent within {allowed} s, because {most} requests of this client wait "
                "for their answers"
            )
        try:
            answer = (connection or self._get_connection(address)).send_request(command, allowed)
        except BaseException:
            self._permits.release()
            raise
        answer.add_done_callback(lambda _: self._permits.release())
        return answer

    def send_and_wait(
        self,
        address: str,
        code: int,
        header: NamedTuple | None = None,
        body: bytes = b"",
        *,
        fields: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        accepted_codes: Collection[int] = (ResponseCode.SUCCESS,),
        connection: PeerConnection | None = None,
    ) -> PeerAnswer:
        """Send a request, and wait for its answer.

        A request that changes nothing is sent again over a new connection if its own breaks: other requests share it,
        and the peer, or a network between, can have closed it because of them.

        Args:
            address: the peer, `host:port`.
            code: a RequestCode.
            body: body of the request.
            fields: arguments that are ext fields already.
            timeout_seconds: time limit for the answer.
            accepted_codes: codes of answers that are not errors.
            connection: the connection to use; by default, the one that all requests to the address share.

        Raises:
            UnreachableError: if it cannot be sent, or there is no answer in time.
            RefusedError: if the answer has another code.
        """
        allowed = self.options.request_seconds if timeout_seconds is None else timeout_seconds
        deadline = time.monotonic() + allowed
        # A caller's own connection is not replaced here, so a repetition over it would be in vain.
        repeats = _READ_REPEATS if connection is None and RequestCode(code).is_read_only else 0
        while True:
            try:
                answer = self.send_request(
                    address, code, header, body, fields=fields, timeout_seconds=allowed, connection=connection
                )
                return wait_for_answer(address, answer, allowed).check_code(accepted_codes)
            except BrokenConnectionError:
                allowed = deadline - time.monotonic()
                if not repeats or self._is_closed or allowed <= 0:
                    raise
                repeats -= 1

    def send_one_way(self, address: str, code: int, header: NamedTuple | None = None, body: bytes = b"", *,
             fields: Mapping[str, str] | None = None) -> None:  # fmt: skip
        """Send a one-way request, for which the peer sends no answer.

        Raises:
            UnreachableError: if it cannot be sent.
            UnserializableError: if it is too large for a frame.
        """
        self._get_connection(address).send_one_way(self._make_command(code, header, body, fields))

    def run_in_background(self, function: Callable[[], None], on_closed: Callable[[], None] | None = None) -> None:
        """Run a function in another thread of this client, because it may block.

        Args:
            function: function to run.
            on_closed: called at once if the client is closed.
        """
        try:
            self._further.submit(_run_and_log_errors, function)
        except RuntimeError:
            # The pool was shut down, because the client was closed.
            if on_closed is not None:
                on_closed()

    def close(self) -> None:
        """Close all connections; requests without an answer get an error."""
        with self._lock:
            self._is_closed = True
            connections = list(self._connections.values())
        for connection in connections:
            connection.close()
        self._further.shutdown(wait=False)

    def _make_command(
        self, code: int, header: NamedTuple | None, body: bytes, fields: Mapping[str, str] | None
    ) -> Command:
        complete = fields if fields is not None else to_ext_fields(header) if header is not None else {}
        if self._credentials is not None:
            complete = sign_fields(complete, body, self._credentials)
        return Command(code, complete, body, serialize_type=self.options.serialize_type)

    def _get_connection(self, address: str) -> PeerConnection:
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            return connection
        # A lock for each address: one thread connects, others wait for it, and those with other addresses do not.
        with self._lock:
            opening = self._opening.setdefault(address, threading.Lock())
        with opening:
            connection = self._connections.get(address)
            if connection is not None and connection.is_open:
                return connection
            connection = self.open(address)
            with self._lock:
                # `close` has not seen this connection.
                if self._is_closed:
                    connection.close()
                self._connections[address] = connection
            return connection

    def open(self, address: str) -> PeerConnection:
        """Open a connection for exclusive use; the caller closes it.

        Raises:
            UnreachableError: if there is none in time, or the address is not valid.
        """
        return PeerConnection(self._check_address(address), self.options, self._handle_request, self._tls)

    def _check_address(self, address: str) -> str:
        """Return a broker's address, which a name server may have given, if it is valid."""
        try:
            split_address(address)
        except ClientOptionError as error:
            asked = ", ".join(self.options.first_addresses)
            raise UnreachableError(f"{asked} answered with an invalid address of a broker: {error}") from None
        return address

    def _handle_request(self, address: str, command: Command) -> None:
        handler = self.handlers.get(command.code)
        if handler is None:
            _log.debug("%s sent a request with code %d, which this client does not support", address, command.code)
            return
        self.run_in_background(lambda: handler(address, command))


def wait_for_answer(address: str, answer_future: Future[Command], timeout_seconds: float) -> PeerAnswer:
    """Wait for the answer to a request of `Network.send_request`.

    Args:
        address: the peer.
        answer_future: result of `Network.send_request`.
        timeout_seconds: time limit for the answer, as given to `Network.send_request`.

    Raises:
        UnreachableError: if there is no answer in time.
    """
    try:
        # The reading thread, which looks at each tick, is to report a late answer first.
        return PeerAnswer(address, answer_future.result(timeout_seconds + 2 * TICK_SECONDS))
    except FutureTimeoutError:
        raise UnreachableError(f"{address}: expected an answer within {timeout_seconds} s, found none") from None


def _run_and_log_errors(function: Callable[[], None]) -> None:
    try:
        function()
    except Exception:  # noqa: BLE001 (nobody waits for it)
        _log.exception("work that %s began failed", __name__)
