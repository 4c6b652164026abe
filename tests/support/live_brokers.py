"""Brokers of broker_lite in the test's process, on real sockets; their name server answers on the same port."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.server.registration import LocalRegistration
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import Command, parse_command, serialize_command
from tests.support.brokers import answer_of
from tests.support.lies import Lie
from tests.support.peer import Peer
from tests.support.small_stores import Clock

STORE = StoreOptions(segment_size_bytes=1 << 16, index_slots=100, index_entries=400, max_message_size_bytes=1 << 14)
_NAME_SERVER_CODES = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    }
)
CLIENT = Host.of("127.0.0.1", 50123)


class LiveBroker:
    """A broker of the cluster.

    Attributes:
        clock: clock of its store.
        peer: its socket.
        store: its messages.
        dispatcher: answers requests.
        registration: registers its topics with the name server.
        requests: codes of all requests to the broker.
        interfere: called with each request to the broker; its result is sent instead of the broker's answer.
        lies: changes to the answers of broker and name server, by request code.
    """

    def __init__(self, root: Path, name: str, clock: Clock, cluster: LiveCluster, accounts: Accounts | None) -> None:
        self.clock = clock
        self.peer = Peer(self._answer)
        self.peer.on_end = self._lost
        self._connection = threading.local()  # of the thread that serves it
        self.requests: list[int] = []
        self.interfere: Callable[[Command], bytes | None] = lambda _: None
        self.lies: dict[int, Lie] = {}
        self._cluster = cluster
        host, port = self.peer.address.rsplit(":", 1)
        options = BrokerOptions(name=name, address=Host.of(host, int(port)))
        self.store = MessageStore.open(root, STORE, clock=clock)
        self.dispatcher = Dispatcher(Broker(self.store, options), accounts)
        self.registration = LocalRegistration(cluster.name_server, options)

    def _answer(self, request: Command) -> bytes | None:
        answer, lie = self._true_answer(request), self.lies.get(request.code)
        parsed = None if lie is None or answer is None else parse_command(answer)
        if lie is None or parsed is None:
            return answer
        told = lie(request, parsed[0])
        return serialize_command(told) if isinstance(told, Command) else told

    def _true_answer(self, request: Command) -> bytes | None:
        with self._cluster.lock:
            frames: list[bytes] = []
            channel = Channel(CLIENT, lambda frame: frames.append(bytes(frame)), lambda: None)
            if request.code in _NAME_SERVER_CODES:
                self._cluster.register()
                channel.send(answer_of(self._cluster.name_server, channel, request))
                return b"".join(frames)
            self.requests.append(request.code)
            instead = self.interfere(request)
            return self.answer_now(request) if instead is None else instead

    def answer_now(self, request: Command) -> bytes:
        """Return the broker's own answer."""
        channel, frames = self._connection.__dict__.setdefault("channel", _new_channel())
        frames.clear()
        self.dispatcher.handle(channel, request)
        while self.dispatcher.run_long_requests():
            pass
        return b"".join(frames)

    def _lost(self) -> None:
        with self._cluster.lock:
            for channel, _ in self._connection.__dict__.values():
                self.dispatcher.on_connection_lost(channel)


def _new_channel() -> tuple[Channel, list[bytes]]:
    """Return the channel of a connection, and the frames that are sent to it."""
    frames: list[bytes] = []
    return Channel(CLIENT, lambda frame: frames.append(bytes(frame)), lambda: None), frames


class LiveCluster:
    """A cluster of brokers with one name server.

    Attributes:
        brokers: brokers by name.
        clock: clock of all brokers.
    """

    def __init__(self, root: Path, names: Sequence[str] = ("broker-a",), accounts: Accounts | None = None) -> None:
        self.clock = Clock()
        self.lock = threading.Lock()
        self.name_server = NameServer(self.clock, accounts)
        self.brokers: dict[str, LiveBroker] = {}
        self._root = root
        self._accounts = accounts
        for name in names:
            self.add(name)

    def add(self, name: str) -> LiveBroker:
        """Start another broker."""
        broker = LiveBroker(self._root / name, name, self.clock, self, self._accounts)
        self.brokers[name] = broker
        broker.peer.__enter__()
        return broker

    @property
    def address(self) -> str:
        """Return the name server's `ip:port`."""
        return next(iter(self.brokers.values())).peer.address

    def register(self) -> None:
        """Register all topics with the name server."""
        for broker in self.brokers.values():
            broker.registration.register(broker.dispatcher.broker.topics.all_configs())

    def __enter__(self) -> Self:
        """Start serving."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all brokers."""
        for broker in self.brokers.values():
            broker.peer.__exit__(kind, error, trace)
            broker.store.close()
