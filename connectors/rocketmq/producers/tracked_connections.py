"""Connections for sending, with a check whether the broker still executes requests from earlier ones.

    connection = connections.open("broker-a")        # registered at the broker by a heartbeat
    … a send over it gets no answer …
    # raises an error while the send may still be executed
    connections.wait_for_earlier_connections("broker-a", connection)

That a connection is closed here proves nothing about the broker: bytes that were sent may lie in a kernel or a proxy,
and reach the broker later than requests of a new connection. The broker itself knows better. Each of these connections
is registered, before anything else is sent over it, under an id of its own as a client of the producer group, and
brokers list the registered connections that they still have (GET_PRODUCER_CONNECTION_LIST). TCP keeps the order of
bytes, so a connection leaves that list only after the broker has received every request that it will ever receive from
it. If the end of a connection never reaches a broker, the broker closes it itself 120 s after its last heartbeat.

After that, a request of the connection may still wait for a thread of the broker (the broker says how long the oldest
has waited), or a thread may be executing it (`EXECUTING_SECONDS`).

A process that was only suspended can open a new connection after that. If another process may have taken its work over,
`check_owner` finds that out: it is called after each connection is registered, before anything is sent over it. A
process that takes work over does so before it lists connections. So it either finds the connection, and waits for its
end, or the check fails.

These cases are excluded by nobody: a thread of a broker that takes longer than `EXECUTING_SECONDS` to append a request
to the log while other threads of it answer; a peer that is not the broker, and sends requests again itself; a master
that another has replaced, and that is still running. Source: ProducerManager, ClientHousekeepingService,
NettyRemotingServer (4.9.7, 5.5.0).
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from commitlake.connectors.rocketmq.admin import Admin
from commitlake.connectors.rocketmq.connection import PeerConnection
from commitlake.connectors.rocketmq.errors import RefusedError, RocketMQError, UnreachableError
from commitlake.connectors.rocketmq.network import Closable
from commitlake.connectors.rocketmq.producers.producer import Producer
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.heartbeats import Heartbeat, ProducerData
from commitlake.schemas.remoting.json_fields import serialize_body

HEARTBEAT_SECONDS = 30.0
"""Time between two heartbeats of a connection."""
EXECUTING_SECONDS = 1.0
"""Time in which a running broker appends a request that one of its threads is executing."""
_LOOKS = 4
"""Number of requests that a broker must answer in that time, so that a time in which it stood still does not count."""
NEVER_LISTED = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.REQUEST_CODE_NOT_SUPPORTED})
"""Answers of a broker that will not list its connections, however often it is asked."""
_WAIT_FIELD = "sendThreadPoolQueueHeadWaitTimeMills"
_MAX_WAIT_MS = 2**63 - 1

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TrackedConnection:
    """A connection for sending messages, and the client id under which the broker lists it.

    Attributes:
        client_id: id under which the broker lists it.
        peer: the connection.
        is_settled: whether the broker has executed all requests that it will ever receive over this connection.
    """

    client_id: str
    peer: PeerConnection
    is_settled: bool = False


class TrackedConnections(Closable):
    """Connections for sending, one to each broker, which can be told from those of earlier processes; thread-safe."""

    def __init__(
        self,
        producer: Producer,
        admin: Admin,
        owner: str,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        *,
        run: str = "",
        share: str = "",
        check_owner: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare connections; none is opened yet.

        Args:
            producer: Producer whose messages are sent over the connections.
            admin: Client that asks brokers for their connections.
            owner: Name that only processes with the same work have, such as the id of a replay.
            sleep: Waits for a number of seconds.
            clock: Returns seconds of a monotonic clock.
            run: Name of the owner's current run, if several processes share its work; without `/`.
            share: Name of this process's share. The run's connections for other shares do not count as earlier ones.
            check_owner: Raises an error if another process has taken over the owner's work, or this share of it.
        """
        self._producer, self._admin = producer, admin
        self._sleep, self._clock, self._check_owner = sleep, clock, check_owner
        self._prefix = f"{owner}@"
        self._run_prefix = f"{owner}@{run}/"
        self._share_prefix = f"{self._run_prefix}{share}/" if run else self._prefix
        self._process = uuid.uuid4().hex[:16]
        self._numbers = itertools.count()
        self._current: dict[str, TrackedConnection] = {}
        self._opening: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        threading.Thread(target=self._send_heartbeats, name="rocketmq heartbeats", daemon=True).start()

    def close(self) -> None:
        """Close all connections."""
        self._is_closed.set()
        with self._lock:
            current = list(self._current.values())
        for connection in current:
            connection.peer.close()

    def open(self, broker_name: str) -> TrackedConnection:
        """Return the connection to a broker's master; open a new one if there is none, or if it is broken.

        Raises:
            NoRouteError: if the broker has no master.
            UnreachableError: if it does not answer.
            RefusedError: if it refuses the heartbeat.
            Exception: the error of `check_owner`.
        """
        with self._lock:
            # One lock for each broker, because a broker that does not answer holds up opening for seconds.
            opening = self._opening.setdefault(broker_name, threading.Lock())
        with opening:
            address = self._producer.routing.master_address(broker_name)
            known = self._current.get(broker_name)
            # Another address is another master, which has taken over the broker's name.
            if known is not None and known.peer.is_open and known.peer.address == address:
                return known
            made = TrackedConnection(
                f"{self._share_prefix}{self._process}-{next(self._numbers)}", self._producer.network.open(address)
            )
            try:
                self._register_connection(made)
                self._check_owner()
            except BaseException:
                made.peer.close()
                raise
            with self._lock:
                self._current[broker_name] = made
                # `close` may have read the connections before this one was among them.
                if self._is_closed.is_set():
                    made.peer.close()
            return made

    def wait_for_earlier_connections(self, broker_name: str, connection: TrackedConnection | None = None) -> None:
        """Check that the owner's earlier connections to a broker are closed, and that their requests were all executed.

        Args:
            connection: Connection over which no more is to be sent; it is closed.

        Raises:
            UnreachableError: if that is not so, or not known, yet; call it again later.
            NoRouteError: if the broker has no master.
            RefusedError: if the broker refuses to list connections.
            ProtocolError: if its answer is not valid.
            Exception: the error of `check_owner`.
        """
        if connection is not None:
            if connection.is_settled:  # many requests may have been on their way over it
                return
            connection.peer.close()
        if earlier := self.earlier_connection_count(broker_name):
            self._check_owner()  # two processes must not wait for each other
            raise UnreachableError(
                f"broker {broker_name!r}: {earlier} earlier connections are still open, over which messages may still "
                "arrive: expected that the broker closes them. Try again later"
            )
        self._wait_for_earlier_requests(broker_name)
        # Only now: after a wait that failed, the next attempt must wait again.
        if connection is not None:
            connection.is_settled = True

    def earlier_connection_count(self, broker_name: str) -> int:
        """Return how many connections of earlier processes with the same owner are still registered at a broker.

        Raises:
            UnreachableError: if the broker does not answer, or does not list the current one.
            NoRouteError: if the broker has no master.
            RefusedError: if the broker refuses to list connections.
            ProtocolError: if its answer is not valid.
        """
        own = self.open(broker_name).client_id
        listed = self._registered_clients(broker_name)
        if own not in listed:
            raise UnreachableError(
                f"broker {broker_name!r}: expected this client among those of the producer group "
                f"{self._producer.group} that the broker lists, found only {len(listed)} others. Try again later"
            )
        return sum(map(self._is_earlier_or_own, listed)) - 1

    def _is_earlier_or_own(self, client_id: str) -> bool:
        if client_id.startswith(self._run_prefix):  # no id begins so without a run
            return client_id.startswith(self._share_prefix)
        return client_id.startswith(self._prefix)

    def _wait_for_earlier_requests(self, broker_name: str) -> None:
        """Wait until a broker has executed all requests that it has received so far."""
        began = self._clock()
        for _ in range(_LOOKS):
            self._sleep(EXECUTING_SECONDS / _LOOKS)
            text = self._admin.runtime_info(broker_name).get(_WAIT_FIELD, "0")
            waited_ms = parse_int(text, 0, _MAX_WAIT_MS)
            # The oldest waiting request is older than this wait, so it may be one of an earlier connection.
            if waited_ms is None or waited_ms >= 1000 * (self._clock() - began):
                raise UnreachableError(
                    f"broker {broker_name!r}: expected that it has executed all earlier requests, but one has waited "
                    f"for {text[:20]} ms. Try again later"
                )

    def _registered_clients(self, broker_name: str) -> set[str]:
        group = self._producer.group
        try:
            connections = self._admin.producer_connections(group, broker_name).connection_set
        except RefusedError as error:
            # Brokers answer with this error, not with an empty list, for a group without a producer.
            if error.code == ResponseCode.SYSTEM_ERROR and f"[{group}] not exist" in error.remark:
                return set()
            raise
        return {connection.client_id for connection in connections}

    def _register_connection(self, connection: TrackedConnection) -> None:
        beat = Heartbeat(connection.client_id, (ProducerData(self._producer.group),))
        self._producer.network.send_and_wait(
            connection.peer.address, RequestCode.HEART_BEAT, None, serialize_body(beat), connection=connection.peer
        )

    def _send_heartbeats(self) -> None:
        """Send heartbeats over the connections, because a broker closes one without heartbeats after 120 s."""
        while not self._is_closed.wait(HEARTBEAT_SECONDS):
            with self._lock:
                current = list(self._current.values())
            for connection in current:
                try:
                    if connection.peer.is_open:
                        self._register_connection(connection)
                except RocketMQError as error:
                    _log.debug("heartbeat: %s", error)  # a send over a broken connection reports it
