"""The HTTP server of `metrics --listen`: its connections are limited in number and time, whatever clients do.

Each connection has one request. A client that does not send it in time, or does not read the answer, is disconnected.
If there are too many connections, the oldest of those that have not sent their request makes room for the newest, so
that clients that keep their requests back cannot keep Prometheus out.
"""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

PATH = "/metrics"
HEALTH_PATH = "/-/healthy"
"""The path for probes, as in Prometheus: it tells that the server answers, and measures nothing."""
MAX_CONNECTIONS = 50
"""Largest number of connections; each has a thread."""
REQUEST_SECONDS = 5.0
"""Time for a client to send its request."""
ANSWER_SECONDS = 30.0
"""Time for a client to read the answer, once it is measured."""
_LOG = logging.getLogger(__name__)


@dataclass
class _ClientConnection:
    """Client connection. `due` is the monotonic time at which it is closed, or None while metrics are measured."""

    due: float | None
    is_cut: bool = False
    has_request: bool = False


class MetricsServer(ThreadingMixIn, HTTPServer):
    """HTTP server that answers with the current Prometheus metrics.

    Args:
        host: address to listen at.
        port: its port.
        registry: the metrics.

    Raises:
        OSError: The address cannot be listened at.
    """

    daemon_threads = True
    request_queue_size = 2 * MAX_CONNECTIONS

    def __init__(self, host: str, port: int, registry: Collector) -> None:
        self.registry = registry
        self._guard = threading.Lock()
        self._open: dict[socket.socket, _ClientConnection] = {}
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), _MetricsRequestHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a new connection; if there are too many, cut another one first."""
        with self._guard:
            self._open[request] = _ClientConnection(time.monotonic() + REQUEST_SECONDS)
            kept = [one for one in self._open.items() if not one[1].is_cut]
            if len(kept) > MAX_CONNECTIONS:
                # Without any that waits for a request, the new one is cut: all others wait for their answers.
                _cut_connection(*next((one for one in kept if not one[1].has_request), kept[-1]))
        super().process_request(request, client_address)

    def set_connection_deadline(self, client_socket: socket.socket, seconds: float | None) -> None:
        """Set the seconds until a connection with a request is cut; None for no limit while metrics are measured."""
        with self._guard:
            connection = self._open[client_socket]
            connection.has_request = True
            connection.due = None if seconds is None else time.monotonic() + seconds

    def service_actions(self) -> None:
        """Cut the connections whose time is over; called ten times a second."""
        now = time.monotonic()
        with self._guard:
            for request, connection in self._open.items():
                if connection.due is not None and connection.due < now and not connection.is_cut:
                    _cut_connection(request, connection)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._guard:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002
        """Log an error of a connection, such as a client that has disconnected."""
        _LOG.debug("the connection to %s failed", client_address, exc_info=True)


def _cut_connection(client_socket: socket.socket, connection: _ClientConnection) -> None:
    """Shut a connection down, so that its thread closes it."""
    connection.is_cut = True
    try:
        client_socket.shutdown(socket.SHUT_RDWR)
    except OSError:
        _LOG.debug("a connection was closed by its client")


class _MetricsRequestHandler(BaseHTTPRequestHandler):
    """Handler of HTTP requests for metrics."""

    server: MetricsServer

    def do_GET(self) -> None:
        self._send_metrics(self._write_response_body)

    def do_HEAD(self) -> None:
        self._send_metrics(lambda _: None)

    def _write_response_body(self, data: bytes) -> None:
        self.wfile.write(data)

    def _send_metrics(self, write_body: Callable[[bytes], None]) -> None:
        if self._is_closed():
            return
        self.server.set_connection_deadline(self.connection, None)
        path = self.path.partition("?")[0]
        if path == PATH:
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            data = encode(self.server.registry)
        elif path == HEALTH_PATH:
            data, content_type = b"healthy\n", "text/plain; charset=utf-8"
        else:
            self.server.set_connection_deadline(self.connection, ANSWER_SECONDS)
            self.send_error(HTTPStatus.NOT_FOUND, explain=f"The metrics are at {PATH}.")
            return
        self.server.set_connection_deadline(self.connection, ANSWER_SECONDS)
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            data = gzip.compress(data)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        write_body(data)

    def _is_closed(self) -> bool:
        """Return whether the connection was cut, or its client has left.

        The end of the connection within a request is read as the end of the request.
        """
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        finally:
            self.connection.setblocking(True)

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        """Log requests only at debug level."""
        _LOG.debug(format, *arguments)


def start_server_thread(server: MetricsServer) -> threading.Thread:
    """Start a thread that serves until `server.shutdown()`."""
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    return thread
