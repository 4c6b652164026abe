"""A proxy in front of a real NameNode that drops the answers to some calls.

    with CuttingProxy(cluster.address) as proxy:
        proxy.lose("rename2", times=2)
        ...  # the client talks to hdfs://127.0.0.1:{proxy.port}

The NameNode executes the call, but the connection is closed before the answer is sent. Calls are recognised by the name
of the method, which Hadoop's protocol sends as text.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16


class CuttingProxy:
    """The proxy, with two threads for each connection.

    Attributes:
        lost: The methods whose answers were dropped.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        """Describe the proxy; entering the context starts it.

        Args:
            server: Address to which connections are forwarded.
        """
        self.lost: list[str] = []
        self._server = server
        self._plans: dict[str, int] = {}
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))

    @property
    def port(self) -> int:
        """Return the port on which it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        """Start it."""
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Accept no more connections."""
        self._listener.close()

    def lose(self, method: str, times: int) -> None:
        """Drop the answers to the next calls of a method."""
        with self._lock:
            self._plans[method] = times

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._server)
                is_cut = threading.Event()
                for source, target, is_answer in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._pump, args=(source, target, is_cut, is_answer), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_cut: threading.Event, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if is_answer and is_cut.is_set():
                    break
                if not is_answer and (method := self._planned(data)) is not None:
                    self.lost.append(method)
                    is_cut.set()
                target.sendall(data)
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
        source.close()

    def _planned(self, data: bytes) -> str | None:
        with self._lock:
            for method, times in self._plans.items():
                if times and method.encode() in data:
                    self._plans[method] = times - 1
                    return method
        return None
