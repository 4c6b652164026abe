"""Server process of a broker, as master or slave, with an optional name server.

    run_server(MessageStore.open(folder), ServerOptions(listen=Address("127.0.0.1", 10911)))

SIGTERM and SIGINT stop it in an orderly way: it accepts no more requests, sends the answers that wait for the disk, and
closes the store.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from commitlake.broker_lite.broker.accounts import Accounts
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.broker.slice_scheduler import SLICE_SECONDS
from commitlake.broker_lite.broker.store_interfaces import BrokerStore
from commitlake.broker_lite.errors import StoreError
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.replication.options import ReplicationOptions
from commitlake.broker_lite.replication.peer_client import PeerClient
from commitlake.broker_lite.replication.role import ReplicationRole
from commitlake.broker_lite.server.background_tasks import LogSyncTask, SliceTimer
from commitlake.broker_lite.server.connections import Connection, Connections, Service
from commitlake.broker_lite.server.limits import PortLimits, raise_descriptor_limit
from commitlake.broker_lite.server.name_server_service import NameServerService
from commitlake.broker_lite.server.registration import LocalRegistration, Registration, RemoteRegistration
from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.tls import ServerTls

TICK_SECONDS = 0.1
HOUSEKEEPING_SECONDS = 5.0
STOP_SECONDS = 10.0
REGISTER_SHARE = 50
"""Ratio of the pause after a slow registration to its duration."""
BACKLOG = 4096
FAST_PORT_DISTANCE = 2
"""RocketMQ also listens two below its port, for requests that must not wait for pulls (the "VIP channel")."""
_logger = logging.getLogger(__name__)


class Address(NamedTuple):
    """Address on which a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Network settings of a broker.

    Attributes:
        listen: address for clients.
        name_server: address of a name server in this process; None for none.
        register_at: other name servers at which the broker registers.
        broker: settings of the broker.
        limits: limits of each port.
        accounts: accounts that may use the broker; None if requests need no signature.
        replication: role of the broker, and the addresses of its master or for its slaves.
        tls: TLS of the broker's and the name server's ports; None for plain text only.
    """

    listen: Address
    name_server: Address | None = None
    register_at: tuple[Address, ...] = ()
    broker: BrokerOptions = field(default_factory=BrokerOptions)
    limits: PortLimits = field(default_factory=PortLimits)
    accounts: Accounts | None = None
    replication: ReplicationOptions = field(default_factory=ReplicationOptions)
    tls: ServerTls | None = None


class ListenError(CommitLakeError):
    """Error for a port that cannot be opened; its message names the address."""


class _BrokerService:
    """Service on the broker's port, which passes requests to its dispatcher."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        replicate: Callable[[], None],
        registration: Callable[[], None],
        sync: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._replicate = replicate
        self._register_new_topics = registration
        self._sync = sync

    def handle(self, channel: Channel, request: Command) -> None:
        self._dispatcher.handle(channel, request)

    def after_requests(self) -> None:
        self._replicate()
        self._dispatcher.answer_held_pulls()
        self._register_new_topics()
        if self._dispatcher.needs_log_sync:
            self._sync()

    def on_connection_lost(self, channel: Channel) -> None:
        self._dispatcher.on_connection_lost(channel)


class BrokerServer:
    """Running broker with its ports, and with a name server if configured."""

    def __init__(self, store: BrokerStore, options: ServerOptions) -> None:
        """Prepare the server; call `run` to start it.

        Args:
            store: store of the messages; it is closed at the end.
        """
        self._store = store
        self._options = options
        self._role = ReplicationRole(store, options.broker, options.replication, options.accounts)
        self._dispatcher = self._role.dispatcher
        self._stop = asyncio.Event()
        self._ports: list[tuple[asyncio.Server, Connections]] = []
        self._registrations: list[Registration] = []
        self._registered_count = -1
        self._next_register_at = 0.0

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Serve until a stop is requested.

        Args:
            on_ready: called when the broker accepts connections.

        Raises:
            ListenError: if a port is not free.
        """
        loop = asyncio.get_running_loop()
        for number in _stop_signals():
            loop.add_signal_handler(number, self._begin_stop, loop)
        log_sync = LogSyncTask(self._store, loop, self._dispatcher.on_log_synced, self._dispatcher.on_sync_failed)
        SliceTimer(loop, self._dispatcher.broker.slices, partial(self._run_long_requests, log_sync))
        try:
            await self._listen(loop, log_sync)
            self._register_with_name_servers()
            ticking = [loop.create_task(self._tick(log_sync)), loop.create_task(self._run_housekeeping())]
            on_ready()
            await self._stop.wait()
            for task in ticking:
                task.cancel()
            await self._stop_serving(log_sync)
        finally:
            log_sync.stop()
            for server, connections in self._ports:
                server.close()
                connections.close()
            self._remove_signal_handlers(loop)

    def _begin_stop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start an orderly stop; a further signal ends the process at once, and the next start recovers the store."""
        self._stop.set()
        self._remove_signal_handlers(loop)

    def _remove_signal_handlers(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.remove_signal_handler(number)

    def _run_long_requests(self, log_sync: LogSyncTask) -> bool:
        """Run one slice of the requests that take long, and return whether more work remains."""
        try:
            has_more = self._dispatcher.run_long_requests()
        except Exception:
            has_more = True
            _logger.exception("a long request failed")
        self._role.send_log()
        if self._dispatcher.needs_log_sync:
            log_sync.request_sync()
        return has_more

    async def _listen(self, loop: asyncio.AbstractEventLoop, log_sync: LogSyncTask) -> None:
        if self._options.name_server is not None:
            name_server = NameServer(self._store.clock, self._options.accounts)
            await self._open_port(loop, self._options.name_server, NameServerService(name_server, loop))
            self._registrations.append(LocalRegistration(name_server, self._options.broker))
        service = _BrokerService(
            self._dispatcher, self._role.send_log, self._register_new_topics, log_sync.request_sync
        )
        await self._open_port(loop, self._options.listen, service)
        for address in self._options.register_at:
            self._registrations.append(
                RemoteRegistration(
                    PeerClient(address.host, address.port, self._options.replication.asking),
                    self._options.broker,
                    loop,
                    self._role.on_registered,
                )
            )
        with _convert_listen_error(self._options.replication.listen):
            await self._role.start(loop)
        if self._role.has_slaves:
            # RocketMQ's slaves request topics at the second port.
            host, port = self._options.listen
            await self._open_port(loop, Address(host, port - FAST_PORT_DISTANCE), service)

    async def _open_port(self, loop: asyncio.AbstractEventLoop, address: Address, service: Service) -> None:
        connections = Connections(service, self._options.limits, loop, self._options.tls)
        with _convert_listen_error(address):
            server = await loop.create_server(lambda: Connection(connections), *address, backlog=BACKLOG)
        self._ports.append((server, connections))

    def _register_new_topics(self) -> None:
        """Register new topics with name servers: at once, or less often if registrations with many topics take long."""
        now = time.perf_counter()
        if self._dispatcher.broker.topics.change_count != self._registered_count and now >= self._next_register_at:
            self._register_with_name_servers()
            took = time.perf_counter() - now
            self._next_register_at = now + took * REGISTER_SHARE if took > SLICE_SECONDS else now

    def _register_with_name_servers(self) -> None:
        topics = self._dispatcher.broker.topics
        self._registered_count = topics.change_count
        for registration in self._registrations:
            registration.register(topics.all_configs())

    async def _tick(self, log_sync: LogSyncTask) -> None:
        has_more = False
        while True:
            await asyncio.sleep(0 if has_more else TICK_SECONDS)
            has_more = False
            try:
                # Check often: a write to a mapped file on a full disk kills the process.
                self._check_disk_space()
                has_more = self._dispatcher.run_periodic_work(self._store.clock())
                self._role.send_log()
                self._register_new_topics()
                if self._dispatcher.needs_log_sync:
                    log_sync.request_sync()
            except Exception:
                # One invalid message must not stop all others.
                _logger.exception("periodic work of the broker failed")

    async def _run_housekeeping(self) -> None:
        loop = asyncio.get_running_loop()
        registered_at = loop.time()
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            for _, connections in self._ports:
                connections.close_idle_connections()
            # In a thread, because the deletion of large files can take long.
            await loop.run_in_executor(None, self._delete_expired_files)
            try:
                if self._role.needs_master or loop.time() - registered_at >= Registration.EVERY_SECONDS:
                    registered_at = loop.time()
                    self._register_with_name_servers()
                for registration in self._registrations:
                    registration.tick()
            except Exception:
                _logger.exception("registration at name servers failed")

    def _delete_expired_files(self) -> None:
        """Delete expired files of the store; runs in a thread."""
        try:
            self._store.delete_expired_files(self._store.clock() / 1000)
        except (OSError, StoreError) as error:
            _logger.error("cannot delete expired files: %s", error)
        except Exception:
            # After any error, idle connections are still closed and the broker stays registered.
            _logger.exception("cannot delete expired files")

    def _check_disk_space(self) -> None:
        """Check the disk of the store, and refuse messages while it is too full."""
        try:
            is_writable = not self._store.is_disk_full
        except OSError:
            # `_delete_expired_files` meets the same error and logs it.
            return
        broker = self._dispatcher.broker
        if broker.is_writable != is_writable:
            _logger.warning("the disk has room again" if is_writable else "the disk is full: messages are refused")
        broker.is_writable = is_writable

    @property
    def _has_unfinished_answers(self) -> bool:
        """True if requests wait to be handled, or answers wait to be sent."""
        return any(connections.has_waiting_requests or connections.unsent_bytes for _, connections in self._ports)

    async def _stop_serving(self, log_sync: LogSyncTask) -> None:
        """Stop accepting requests, and send the answers to those already received."""
        # First, so that clients learn that this broker is gone before it stops to answer.
        for registration in self._registrations:
            await registration.unregister()
        await self._role.disconnect_from_master()
        for server, connections in self._ports:
            server.close()
            connections.stop_reading()
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        while asyncio.get_running_loop().time() < deadline:
            has_pending_answers = self._role.has_pending_answers(self._store.clock())
            if self._dispatcher.needs_log_sync:
                log_sync.request_sync()
            elif (
                not has_pending_answers and self._dispatcher.broker.slices.is_empty and not self._has_unfinished_answers
            ):
                break
            await asyncio.sleep(0.01)
        for _, connections in self._ports:
            connections.close()
        # Last, so that the slaves get the end of the log.
        await self._role.disconnect_slaves()
        await asyncio.sleep(0)


def _stop_signals() -> list[int]:
    """Return the signals that stop the server; a signal ignored at the start, as with nohup, stays ignored."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


@contextmanager
def _convert_listen_error(address: object) -> Iterator[None]:
    """Convert an error in opening a port within the block to a `ListenError`."""
    try:
        yield
    except OSError as error:
        # asyncio's message is long, and formats the address differently.
        raise ListenError(f"{address}: cannot listen: {os.strerror(error.errno) if error.errno else error}") from error


def run_server(store: BrokerStore, options: ServerOptions, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or SIGINT, and close the store.

    Args:
        store: an open store, in any layout.
        on_ready: called when the broker accepts connections.

    Raises:
        ListenError: if a port cannot be opened.
        StoreError: if the store cannot be flushed to disk at the end; it is recovered when it is opened again.
        OSError: same as StoreError.
    """

    async def serve() -> None:
        await BrokerServer(store, options).run(on_ready)

    raise_descriptor_limit(options.limits.connections)
    with store, asyncio.Runner(loop_factory=_event_loop_factory()) as runner:
        runner.run(serve())


def _event_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops, which is faster, if that is installed, else None."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    return factory
