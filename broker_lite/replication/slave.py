"""A slave's connection to its master: the log comes in, and how far it has come goes out.

Where the master is, an option says, or the answer of a name server at which both have registered. A connection that
ends, in whatever way, is made again after a while. Source: DefaultHAClient, BrokerController (5.5.0).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from commitlake.broker_lite.replication.asking import Asker
from commitlake.broker_lite.replication.errors import ReplicationError
from commitlake.broker_lite.replication.log_copy import LogCopy
from commitlake.broker_lite.replication.options import ReplicationOptions
from commitlake.broker_lite.replication.protocol import SlaveSide
from commitlake.broker_lite.replication.synchronize import Synchronizer
from commitlake.broker_lite.stores.engine.errors import StoreError
from commitlake.schemas.layouts.numbers import parse_int
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerResponse

_READ_BYTES = 256 << 10
_logger = logging.getLogger(__name__)
Place = tuple[str, int]


def parse_place(text: str | None) -> Place | None:
    """Host and port of an address as brokers register it; None for anything else, as an empty text."""
    host, _, port = (text or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = parse_int(port, 1, 0xFFFF)
    return (host, number) if host and number is not None else None


class Slave:
    """Follows one master.

    Attributes:
        knows_master: whether it was told where the master's log is.
    """

    def __init__(
        self, log: LogCopy, synchronizer: Synchronizer, options: ReplicationOptions, arrived: Callable[[], None]
    ) -> None:
        """Begin without a master.

        Args:
            log: where the bytes go.
            synchronizer: what is asked of the master beside.
            options: how.
            arrived: is called when records have come.
        """
        self._log = log
        self._synchronizer = synchronizer
        self._options = options
        self._arrived = arrived
        self._place = options.master
        self._asker: Asker | None = None
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def knows_master(self) -> bool:
        """Whether it was told where the master is, its log and itself."""
        return self._place is not None and self._asker is not None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to follow."""
        self._tasks = [loop.create_task(self._follow()), loop.create_task(self._synchronize())]

    async def stop(self) -> None:
        """Follow no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._asker is not None:
            self._asker.close()

    def told(self, answer: RegisterBrokerResponse) -> None:
        """Take what a name server says of the master."""
        place = parse_place(answer.ha_server_addr)
        if self._options.master is None and place is not None and place != self._place:
            _logger.info("the master's log is at %s:%d", *place)
            self._place = place
        master = parse_place(answer.master_addr)
        if master is not None and (self._asker is None or self._asker.place != master):
            if self._asker is not None:
                self._asker.close()
            self._asker = Asker(*master, self._options.asking)
        if self.knows_master:
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            place = self._place
            try:
                if place is not None:
                    await self._copy(*place)
            except (OSError, TimeoutError, ReplicationError, StoreError) as error:
                _logger.warning(
                    "the log of master %s:%d is not copied now: %s", *(place or ("?", 0)), error or "no answer"
                )
            await asyncio.sleep(self._options.retry_seconds if place is not None else 0.1)

    async def _copy(self, host: str, port: int) -> None:
        """Copy until the connection ends.

        Raises:
            OSError: if it does not come about, or ends.
            TimeoutError: if the master says nothing for long.
            ReplicationError: if what it says is wrong.
            StoreError: if the bytes cannot be stored.
        """
        options = self._options
        async with asyncio.timeout(options.housekeeping_seconds):
            reader, writer = await asyncio.open_connection(host, port)
        reporting = None
        try:
            side = SlaveSide(self._log.segment_size, self._log.end)
            writer.write(side.report())
            reporting = asyncio.get_running_loop().create_task(self._report(side, writer))
            while True:
                async with asyncio.timeout(options.housekeeping_seconds):
                    data = await reader.read(_READ_BYTES)
                if not data:
                    raise ConnectionResetError("it has closed the connection")
                stretches = side.receive(data)
                for stretch in stretches:
                    self._log.append(stretch.physical_offset, stretch.data)
                if stretches:
                    writer.write(side.report())
                    self._arrived()
        finally:
            if reporting is not None:
                reporting.cancel()
            writer.close()

    async def _report(self, side: SlaveSide, writer: asyncio.StreamWriter) -> None:
        """Give signs of life; between two reads all that was received is in the log."""
        while True:
            await asyncio.sleep(self._options.heartbeat_seconds)
            writer.write(side.report())

    async def _synchronize(self) -> None:
        await self._changed.wait()
        while True:
            assert self._asker is not None
            try:
                await self._synchronizer.run(self._asker)
            except StoreError as error:
                _logger.warning("topics, groups and offsets cannot be kept: %s", error)
            await asyncio.sleep(self._options.synchronize_seconds)
