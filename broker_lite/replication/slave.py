"""Slave's connection to its master, which receives the log and reports its progress.

The master's address comes from an option, or from a name server at which both have registered. When the connection
fails or closes, the slave reconnects after a pause. Source: DefaultHAClient, BrokerController (5.5.0).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from commitlake.broker_lite.errors import ReplicationError, StoreError
from commitlake.broker_lite.replication.log_copy import LogCopy
from commitlake.broker_lite.replication.options import ReplicationOptions
from commitlake.broker_lite.replication.peer_client import PeerClient
from commitlake.broker_lite.replication.protocol import SlaveSide
from commitlake.broker_lite.replication.table_synchronizer import TableSynchronizer
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerResponse

_READ_BYTES = 256 << 10
_logger = logging.getLogger(__name__)
HostAndPort = tuple[str, int]


def parse_address(text: str | None) -> HostAndPort | None:
    """Parse the host and port of an address as brokers register it; return None if it is empty or invalid."""
    host, _, port = (text or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = parse_int(port, 1, 0xFFFF)
    return (host, number) if host and number is not None else None


class Slave:
    """Slave that copies the log of its master over the network.

    Attributes:
        knows_master: True once the master's addresses are known.
    """

    def __init__(
        self, log: LogCopy, synchronizer: TableSynchronizer, options: ReplicationOptions, arrived: Callable[[], None]
    ) -> None:
        """Create a slave that does not know its master yet.

        Args:
            log: log to which received bytes are appended.
            synchronizer: copies topics, groups and offsets of the master.
            arrived: called when records have arrived.
        """
        self._log = log
        self._synchronizer = synchronizer
        self._options = options
        self._arrived = arrived
        self._address = options.master
        self._client: PeerClient | None = None
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def knows_master(self) -> bool:
        """True once the addresses of the master and of its log are known."""
        return self._address is not None and self._client is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start to follow the master."""
        self._tasks = [loop.create_task(self._follow_master()), loop.create_task(self._synchronize_tables())]

    async def stop(self) -> None:
        """Stop following the master."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._client is not None:
            self._client.close()

    def on_registered(self, answer: RegisterBrokerResponse) -> None:
        """Use the master's address in a name server's answer to the registration."""
        address = parse_address(answer.ha_server_addr)
        if self._options.master is None and address is not None and address != self._address:
            _logger.info("the master's log is at %s:%d", *address)
            self._address = address
        master = parse_address(answer.master_addr)
        if master is not None and (self._client is None or self._client.address != master):
            if self._client is not None:
                self._client.close()
            self._client = PeerClient(*master, self._options.asking)
        if self.knows_master:
            self._changed.set()

    async def _follow_master(self) -> None:
        while True:
            address = self._address
            try:
                if address is not None:
                    await self._copy_log(*address)
            except (OSError, TimeoutError, ReplicationError, StoreError) as error:
                _logger.warning(
                    "cannot copy the log of master %s:%d, will retry: %s", *(address or ("?", 0)), error or "no answer"
                )
            await asyncio.sleep(self._options.retry_seconds if address is not None else 0.1)

    async def _copy_log(self, host: str, port: int) -> None:
        """Copy the log until the connection closes."""
        options = self._options
        async with asyncio.timeout(options.housekeeping_seconds):
            reader, writer = await asyncio.open_connection(host, port)
        reporting = None
        try:
            # Each connection begins where the log ends now. Bytes that an earlier one has received but not stored do
            # not count.
            side = SlaveSide(self._log.segment_size, self._log.end_offset)
            writer.write(side.serialize_report())
            reporting = asyncio.get_running_loop().create_task(self._send_reports(side, writer))
            while True:
                async with asyncio.timeout(options.housekeeping_seconds):
                    data = await reader.read(_READ_BYTES)
                if not data:
                    raise ConnectionResetError("the master closed the connection while it sent its log")
                chunks = side.receive_log(data)
                for chunk in chunks:
                    self._log.append(chunk.physical_offset, chunk.data)
                if chunks:
                    # After the append: the report tells the master that these bytes are in the log.
                    writer.write(side.serialize_report())
                    self._arrived()
        finally:
            if reporting is not None:
                reporting.cancel()
            writer.close()

    async def _send_reports(self, slave_protocol: SlaveSide, writer: asyncio.StreamWriter) -> None:
        """Report to the master at an interval how far the log is written; this also serves as a heartbeat."""
        while True:
            await asyncio.sleep(self._options.heartbeat_seconds)
            writer.write(slave_protocol.serialize_report())

    async def _synchronize_tables(self) -> None:
        await self._changed.wait()
        while True:
            assert self._client is not None
            try:
                await self._synchronizer.run(self._client)
            except StoreError as error:
                _logger.warning("cannot store topics, groups and offsets of the master: %s", error)
            await asyncio.sleep(self._options.synchronize_seconds)
