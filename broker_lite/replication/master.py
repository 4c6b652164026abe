"""Connections of a master to its slaves: each receives the log from the offset that it reports.

The master sends only as fast as a slave reads, so a slow slave costs no memory. Source:
DefaultHAService, DefaultHAConnection (5.5.0).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable
from typing import cast

from commitlake.broker_lite.broker.limits import LimitedLog
from commitlake.broker_lite.broker.slice_scheduler import SLICE_SECONDS
from commitlake.broker_lite.errors import PeerError, StoreError
from commitlake.broker_lite.replication.options import ReplicationOptions
from commitlake.broker_lite.replication.protocol import MasterSide
from commitlake.broker_lite.stores.rocketmq import MessageStore

_UNREAD_BYTES = 1 << 20
"""Maximum number of unread bytes on the way to one slave."""
_logger = logging.getLogger(__name__)


class Master:
    """Server that sends a store's log to slaves.

    Attributes:
        acknowledged: highest offset that a slave has acknowledged; as in RocketMQ, it stays after that slave
            disconnects.
        log: rate-limited warnings about slaves.
    """

    def __init__(
        self,
        store: MessageStore,
        options: ReplicationOptions,
        loop: asyncio.AbstractEventLoop,
        progressed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Create a master without slaves.

        Args:
            store: store whose log is sent.
            progressed: called with the highest acknowledged offset whenever it rises.
        """
        self.acknowledged = 0
        self.options = options
        self.loop = loop
        self.store = store
        self.log = LimitedLog(_logger, loop.time)
        self._progressed = progressed
        self._slaves: dict[SlaveConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to listen for slaves.

        Raises:
            OSError: if the port cannot be opened.
        """
        assert self.options.listen is not None
        self._server = await self.loop.create_server(lambda: SlaveConnection(self), *self.options.listen)
        self._ticking = self.loop.create_task(self._tick())

    async def stop(self) -> None:
        """Close the connections of all slaves."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._server is not None:
            self._server.close()
        for slave in list(self._slaves):
            slave.close()
        # Closing takes effect in the next round of the event loop.
        await asyncio.sleep(0)

    def add_slave(self, slave: SlaveConnection) -> str | None:
        """Add a slave's connection; if it is refused, return the reason, else None."""
        peer = ipaddress.ip_address(slave.ip)
        if self.options.allowed and not any(peer in network for network in self.options.allowed):
            return "its address is not among the allowed networks"
        if len(self._slaves) >= self.options.connections:
            return "there are too many slaves"
        if sum(other.ip == slave.ip for other in self._slaves) >= self.options.connections_of_one:
            return "there are too many slaves from its address"
        self._slaves[slave] = None
        return None

    def discard_slave(self, slave: SlaveConnection) -> None:
        """Remove a closed connection."""
        self._slaves.pop(slave, None)

    def note_acknowledged_offset(self, offset: int) -> None:
        """Update the highest offset up to which a slave has acknowledged the log."""
        if offset > self.acknowledged:
            self.acknowledged = offset
            self._progressed(offset)

    def has_slave_in_range(self, offset: int) -> bool:
        """Return True if a slave is connected whose log is less than `max_gap_bytes` behind an offset."""
        is_there = any(slave.has_reported for slave in self._slaves)
        return is_there and offset - self.acknowledged < self.options.max_gap_bytes

    def send_log(self) -> None:
        """Send new bytes of the log to the slaves; call this when the log has grown."""
        for slave in list(self._slaves):
            slave.send_log()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self.options.heartbeat_seconds / 2))
            self.log.log_suppressed_warnings()
            for slave in list(self._slaves):
                slave.tick()


class SlaveConnection(asyncio.Protocol):
    """Connection of a master to one slave.

    Attributes:
        ip: address of the slave; empty before it has connected.
    """

    def __init__(self, master: Master) -> None:
        self._master = master
        self._side = MasterSide(master.store.options.segment_size_bytes, master.options.batch_bytes)
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._will_send = False
        self._connected_at = self._heard_at = self._sent_at = master.loop.time()
        self.ip = ""

    @property
    def has_reported(self) -> bool:
        """True after the slave has reported its offset for the first time."""
        return self._side.acknowledged is not None

    @property
    def _peer(self) -> str:
        host, port = self._transport.get_extra_info("peername")[:2] if self._transport else ("?", 0)
        return f"{host}:{port}"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the connection of a slave, or close it if the master refuses it."""
        self._transport = cast("asyncio.Transport", transport)
        # Above this, `pause_writing` is called, so that a slave that does not read costs no memory.
        self._transport.set_write_buffer_limits(_UNREAD_BYTES)
        # Without the zone of a link-local IPv6 address, which `ip_address` does not compare with networks.
        self.ip = transport.get_extra_info("peername")[0].partition("%")[0]
        if (refusal := self._master.add_slave(self)) is not None:
            self._master.log.warning("refused slave %s: %s", self._peer, refusal)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse offset reports of the slave, and send the log from there on."""
        self._heard_at = self._master.loop.time()
        begun = self.has_reported
        try:
            self._side.receive_reports(data, self._log_range())
        except (PeerError, StoreError) as error:
            self._close_after_error(error)
            return
        if not begun and self.has_reported:
            _logger.info("slave %s receives the log from offset %d on", self._peer, self._side.next_offset)
        if self._side.acknowledged is not None:
            self._master.note_acknowledged_offset(self._side.acknowledged)
        self.send_log()

    def _log_range(self) -> range:
        return range(self._master.store.min_physical_offset, self._master.store.log_end)

    def send_log(self) -> None:
        """Send bytes of the log as fast as the slave reads them; after some milliseconds, let other work run first."""
        transport = self._transport
        if transport is None or self._is_paused or self._will_send or not self.has_reported:
            return
        end = time.perf_counter() + SLICE_SECONDS
        try:
            while not self._is_paused and not transport.is_closing():
                # A slave that lags by gigabytes must not hold up the broker's other connections.
                if time.perf_counter() >= end:
                    self._will_send = True
                    self._master.loop.call_soon(self._continue_sending)
                    return
                due = self._side.next_transfer(self._log_range())
                if due is None:
                    return
                self._write_bytes(self._side.serialize_transfer(self._master.store.record_at(*due)))
        except (PeerError, StoreError) as error:
            self._close_after_error(error)

    def _continue_sending(self) -> None:
        self._will_send = False
        self.send_log()

    def _write_bytes(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)
            self._sent_at = self._master.loop.time()

    def _close_after_error(self, error: Exception) -> None:
        self._master.log.warning("closed the connection to slave %s: %s", self._peer, error)
        if self._transport is not None:
            self._transport.abort()

    def tick(self) -> None:
        """Send a heartbeat after a pause; close the connection if the slave has been silent for too long."""
        now, options = self._master.loop.time(), self._master.options
        if not self.has_reported and now - self._connected_at > options.housekeeping_seconds:
            self._close_after_error(PeerError("expected a first report with its offset, found none"))
        elif now - self._heard_at > options.housekeeping_seconds:
            self._close_after_error(PeerError(f"expected a report every {options.heartbeat_seconds:.0f} s, found none"))
        elif now - self._sent_at >= options.heartbeat_seconds and not self._is_paused:
            # A paused slave gets its bytes later, and a heartbeat would only add to them.
            self._write_bytes(self._side.serialize_heartbeat())

    def pause_writing(self) -> None:
        """Stop sending, because the slave does not read what was sent."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Continue to send, because the slave has read what was sent."""
        self._is_paused = False
        self.send_log()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the reason does not matter)
        """Remove the connection from the master after it has closed."""
        self._master.discard_slave(self)
        self._transport = None
