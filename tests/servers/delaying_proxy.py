"""A slow network in front of a real name server and broker: bytes are late, connections are cut, none is lost or moved.

    with DelayingProxy(name_server_address, broker_address, Faults(hold=0.06, hold_seconds=9)) as proxy:
        ...  # the client talks to proxy.name_server_address, whose routes lead to the proxy

Within a connection, bytes keep their order. A connection that is held is overtaken by later ones. A connection that is
cut ends for the client at once, but the broker still gets what the client has sent, after a while.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Faults:
    """Faults of the connections to the broker; each large write of a client may have one.

    Attributes:
        hold: share of the large writes after which a connection stands still.
        hold_seconds: for how long.
        cut: share of the large writes that the broker gets only after the client's connection has ended.
        cut_seconds: how much later the broker gets them.
        large_bytes: size from which a write is large.
    """

    hold: float = 0.0
    hold_seconds: float = 0.0
    cut: float = 0.0
    cut_seconds: float = 0.0
    large_bytes: int = 16_000


@dataclass
class _Server:
    """A server, the port of the proxy that leads to it, and whether its connections have faults."""

    address: tuple[str, int]
    has_faults: bool
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0), backlog=128))

    @property
    def proxied(self) -> str:
        return f"127.0.0.1:{self.listener.getsockname()[1]}"


class DelayingProxy:
    """The proxy, with two threads for each connection.

    Attributes:
        faults: faults of the connections to the broker; may be replaced at any time.
        held: number of writes that were held.
        cuts: number of connections that were cut.
    """

    def __init__(self, name_server: str, broker: str, faults: Faults, seed: int = 0) -> None:
        """Open the ports; entering the context starts the proxy.

        Args:
            name_server: address of the name server.
            broker: address of the broker, as its routes have it.
            faults: faults of the connections to the broker.
            seed: the same seed chooses the same writes.
        """
        self.faults = faults
        self.held = self.cuts = 0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._broker = _Server(_address(broker), has_faults=True)
        while len(self._broker.proxied) != len(broker):  # a route's length must not change
            self._broker = _Server(_address(broker), has_faults=True)
        self._name_server = _Server(_address(name_server), has_faults=False)
        self._replaced = broker.encode(), self._broker.proxied.encode()

    @property
    def name_server_address(self) -> str:
        """Return the address of the name server behind the proxy."""
        return self._name_server.proxied

    def __enter__(self) -> Self:
        """Start accepting connections."""
        for server in (self._broker, self._name_server):
            threading.Thread(target=self._accept, args=(server,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Accept no more connections."""
        for server in (self._broker, self._name_server):
            with suppress(OSError):
                server.listener.shutdown(socket.SHUT_RDWR)
            server.listener.close()

    def _accept(self, server: _Server) -> None:
        with suppress(OSError):
            while True:
                client = server.listener.accept()[0]
                threading.Thread(target=self._connect, args=(server, client), daemon=True).start()

    def _connect(self, server: _Server, client: socket.socket) -> None:
        with client:
            try:
                peer = socket.create_connection(server.address, timeout=10)
            except OSError:
                return  # the client sees the end of its connection
            with peer:
                peer.settimeout(None)
                for each in (client, peer):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                answers = threading.Thread(target=self._answer, args=(server, peer, client), daemon=True)
                answers.start()
                self._request(server, client, peer)
                answers.join()

    def _request(self, server: _Server, client: socket.socket, peer: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(_CHUNK_BYTES):
                seconds, is_cut = self._fault(data) if server.has_faults else (0.0, False)
                if is_cut:
                    client.shutdown(socket.SHUT_RDWR)
                time.sleep(seconds)
                peer.sendall(data)
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)

    def _answer(self, server: _Server, peer: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := peer.recv(_CHUNK_BYTES):
                with suppress(OSError):  # a client that is gone must not end what the broker still gets
                    client.sendall(data if server.has_faults else data.replace(*self._replaced))
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)

    def _fault(self, data: bytes) -> tuple[float, bool]:
        """Return for how long a write is held, and whether its connection is cut."""
        faults = self.faults
        if len(data) < faults.large_bytes:
            return 0.0, False
        with self._lock:
            chance = self._chance.random()
            if chance < faults.cut:
                self.cuts += 1
                return faults.cut_seconds, True
            if chance < faults.cut + faults.hold:
                self.held += 1
                return faults.hold_seconds, False
        return 0.0, False


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)
