"""Tests of a master and slaves over real connections in one loop: heartbeats, slow, silent and too many peers."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.replication.log_copy import LogCopy
from commitlake.broker_lite.replication.master import Master
from commitlake.broker_lite.replication.options import ReplicationOptions, Role
from commitlake.broker_lite.replication.protocol import TRANSFER
from commitlake.broker_lite.replication.slave import Slave
from commitlake.broker_lite.replication.table_synchronizer import TableSynchronizer
from commitlake.broker_lite.stores.rocketmq import MessageStore
from tests.servers.process import free_ports
from tests.support.message_stores import SMALL, fill
from tests.support.small_stores import Clock, all_messages
from tests.support.waiting import let_pass_in_loop

SECONDS = 20


def options(**changes: object) -> ReplicationOptions:
    """Return options with short times and a free port."""
    values: dict[str, object] = {
        "listen": ("127.0.0.1", free_ports(1)),
        "heartbeat_seconds": 0.1,
        "housekeeping_seconds": 5.0,
        "retry_seconds": 0.1,
        "batch_bytes": 700,
    }
    return ReplicationOptions(**(values | changes))  # type: ignore[arg-type]


def with_master(
    root: Path, settings: ReplicationOptions, use: Callable[[Master], Coroutine[None, None, None]], count: int = 40
) -> None:
    """Use a master with a small log."""

    async def run() -> None:
        master = Master(store, settings, asyncio.get_running_loop())
        await master.start()
        try:
            async with asyncio.timeout(SECONDS):
                await use(master)
        finally:
            await master.stop()

    with MessageStore.open(root, SMALL, clock=Clock()) as store:
        fill(store, count)
        asyncio.run(run())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; the caller has a time limit."""
    while not condition():
        await asyncio.sleep(0.01)


async def with_slave(root: Path, settings: ReplicationOptions, use: Callable[[MessageStore], Awaitable[None]]) -> None:
    """Use a slave of a master that listens."""
    with MessageStore.open(root, SMALL, clock=Clock(), is_copy=True) as store:
        synchronizer = TableSynchronizer(Broker(store, BrokerOptions()))
        address = options(role=Role.SLAVE, listen=None, master=settings.listen)
        slave = Slave(LogCopy(store), synchronizer, address, lambda: None)
        slave.start(asyncio.get_running_loop())
        try:
            await use(store)
        finally:
            await slave.stop()


async def has_ended(reader: asyncio.StreamReader) -> bool:
    """Read to the end; the caller has a time limit."""
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def test_a_slave_follows_and_reconnects(root: Path, tmp_path: Path) -> None:
    settings = options()

    async def use(master: Master) -> None:
        async def follow(copy: MessageStore) -> None:
            fill(master.store, 10, 100)
            master.send_log()
            await until(lambda: master.acknowledged == master.store.log_end)
            # The newest segment and later messages.
            wanted = {
                key: [one for one in messages if one.physical_offset >= copy.min_physical_offset]
                for key, messages in all_messages(master.store).items()
            }
            assert all_messages(copy) == wanted
            assert master.has_slave_in_range(master.store.log_end)

        await with_slave(tmp_path / "slave", settings, follow)
        await until(lambda: not master.has_slave_in_range(master.store.log_end))
        fill(master.store, 30, 200)
        await with_slave(tmp_path / "slave", settings, follow)

    with_master(root, settings, use)


def test_a_master_sends_heartbeats(root: Path) -> None:
    settings = options()

    async def use(master: Master) -> None:
        assert settings.listen is not None
        reader, writer = await asyncio.open_connection(*settings.listen)
        writer.write(master.store.log_end.to_bytes(8, "big"))
        for _ in range(2):
            assert TRANSFER.unpack(await reader.readexactly(TRANSFER.size)) == (master.store.log_end, 0)
        writer.close()

    with_master(root, settings, use)


@pytest.mark.parametrize("data", [b"", (0).to_bytes(8, "big")])
def test_a_silent_slave_is_disconnected(root: Path, data: bytes) -> None:
    settings = options(housekeeping_seconds=0.3)

    async def use(master: Master) -> None:
        assert settings.listen is not None
        reader, writer = await asyncio.open_connection(*settings.listen)
        writer.write(data)
        assert await has_ended(reader)
        writer.close()

    with_master(root, settings, use)


def test_slaves_over_the_limit_are_disconnected(root: Path) -> None:
    settings = options(connections=1)

    async def use(master: Master) -> None:
        assert settings.listen is not None
        first, first_writer = await asyncio.open_connection(*settings.listen)
        first_writer.write((0).to_bytes(8, "big"))
        assert await first.readexactly(TRANSFER.size)
        second, second_writer = await asyncio.open_connection(*settings.listen)
        assert await has_ended(second)
        for writer in (first_writer, second_writer):
            writer.close()

    with_master(root, settings, use)


@pytest.mark.parametrize("data", [b"x", b"1234567"])
def test_a_slave_that_never_sends_its_offset_is_disconnected(root: Path, data: bytes) -> None:
    settings = options(housekeeping_seconds=0.3)

    async def use(master: Master) -> None:
        assert settings.listen is not None
        reader, writer = await asyncio.open_connection(*settings.listen)
        writer.write(data)
        ended = asyncio.ensure_future(has_ended(reader))
        if len(data) == 1:
            for _ in range(6):
                await let_pass_in_loop(0.1, "single bytes arrive for longer than a report may take")
                writer.write(b"x" if not ended.done() else b"")
        assert await ended
        writer.close()

    with_master(root, settings, use)


@pytest.mark.parametrize(
    "changes",
    [
        {"connections_of_one": 1},
        {"allowed": (ipaddress.ip_network("127.0.0.2/31"), ipaddress.ip_network("::1"))},
    ],
)
def test_only_allowed_slaves_receive_the_log(root: Path, changes: dict[str, object]) -> None:
    settings = options(**changes)

    async def begin(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert settings.listen is not None
        reader, writer = await asyncio.open_connection(*settings.listen, local_addr=(host, 0))
        writer.write((0).to_bytes(8, "big"))
        return reader, writer

    async def use(master: Master) -> None:
        first, first_writer = await begin("127.0.0.2")
        assert await first.readexactly(TRANSFER.size)
        other, other_writer = await begin("127.0.0.3")
        assert await other.readexactly(TRANSFER.size)
        refused, refused_writer = await begin("127.0.0.1" if settings.allowed else "127.0.0.2")
        assert await has_ended(refused)
        for writer in (first_writer, other_writer, refused_writer):
            writer.close()

    with_master(root, settings, use)


def test_a_send_interrupted_by_its_time_slice_is_continued(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.replication.master.SLICE_SECONDS", -1)
    settings = options()

    async def use(master: Master) -> None:
        assert settings.listen is not None
        reader, writer = await asyncio.open_connection(*settings.listen)
        writer.write((0).to_bytes(8, "big"))
        await until(lambda: bool(master._slaves) and next(iter(master._slaves))._will_send)
        monkeypatch.setattr("commitlake.broker_lite.replication.master.SLICE_SECONDS", 60)
        assert await reader.readexactly(TRANSFER.size)
        writer.close()

    with_master(root, settings, use)
