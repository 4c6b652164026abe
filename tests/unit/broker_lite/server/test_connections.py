"""Limits of the memory and time that clients can take from a port, tested with sockets on the loopback address."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import ParamSpec

import pytest

from commitlake.broker_lite.protocol import Channel
from commitlake.broker_lite.server.connections import Connection, Connections
from commitlake.broker_lite.server.limits import PortLimits
from commitlake.schemas.remoting.frames import Command, serialize_command

P = ParamSpec("P")
PATIENCE_SECONDS = 10
FRAME = serialize_command(Command(1, body=b"x" * 1000))


def in_a_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    """Run a test in an event loop."""

    @functools.wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


class Echo:
    """A service that answers every request with `size` bytes."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.seen: list[tuple[int, int]] = []
        self.work: Callable[[], None] = lambda: None
        self.channels: list[Channel] = []

    def handle(self, channel: Channel, request: Command) -> None:
        """Answer a request."""
        self.work()
        self.channels.append(channel)
        self.seen.append((channel.peer.port, request.opaque))
        channel.send(request.reply(0, body=b"y" * self.size))

    def after_requests(self) -> None:
        """Do nothing."""

    def on_connection_lost(self, channel: Channel) -> None:
        """Do nothing."""


@asynccontextmanager
async def serving(service: Echo, limits: PortLimits) -> AsyncIterator[tuple[Connections, int]]:
    """Serve a port of the service."""
    loop = asyncio.get_running_loop()
    connections = Connections(service, limits, loop)
    server = await loop.create_server(lambda: Connection(connections), "127.0.0.1", 0)
    try:
        yield connections, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        connections.close()
        await asyncio.sleep(0)


async def connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect a client."""
    return await asyncio.open_connection("127.0.0.1", port)


async def until(is_so: Callable[[], bool]) -> None:
    """Run the loop until a condition holds."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.001)


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    """Return whether the port ends a connection."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


@in_a_loop
async def test_a_connection_with_an_unfinished_frame_times_out() -> None:
    async with serving(Echo(), PortLimits(frame_seconds=-1)) as (connections, port):
        slow, slow_writer = await connect(port)
        _, idle_writer = await connect(port)
        slow_writer.write(FRAME[:9])
        await until(lambda: connections._unfinished_bytes == 9)
        connections.close_idle_connections()
        assert await is_cut_off(slow)
        await until(lambda: len(connections) == 1)
        assert connections._unfinished_bytes == 0
        for writer in (slow_writer, idle_writer):
            writer.close()


@pytest.mark.parametrize("close", [Connection.abort, Connection.close])
@in_a_loop
async def test_a_closed_connection_keeps_no_received_bytes(close: Callable[[Connection], None]) -> None:
    async with serving(Echo(), PortLimits()) as (connections, port):
        _, writer = await connect(port)
        writer.write(FRAME[:900])
        await until(lambda: connections._unfinished_bytes == 900)
        (connection,) = connections._open
        close(connection)
        await until(lambda: not len(connections))
        assert connection._reader.incomplete_frame_size == 0
        writer.close()


@in_a_loop
async def test_a_frame_that_arrives_slowly_has_the_same_time_limit() -> None:
    async with serving(Echo(), PortLimits()) as (connections, port):
        reader, writer = await connect(port)
        writer.write(FRAME[:10])
        await until(lambda: connections._unfinished_bytes == 10)
        (connection,) = connections._open
        began = connection._frame_began_at
        writer.write(FRAME[10:20])
        await until(lambda: connections._unfinished_bytes == 20)
        assert connection._frame_began_at == began
        writer.write(FRAME[20:] + FRAME[:5])
        await until(lambda: connections._unfinished_bytes == 5)
        assert connection._frame_began_at > began
        writer.write(FRAME[5:])
        await until(lambda: connections._unfinished_bytes == 0)
        assert await reader.read(1)
        writer.close()


@in_a_loop
async def test_unfinished_frames_have_a_budget_and_the_oldest_is_closed_first() -> None:
    service = Echo()
    async with serving(service, PortLimits(unfinished_bytes=1500)) as (connections, port):
        old, old_writer = await connect(port)
        old_writer.write(FRAME[:600])
        await until(lambda: connections._unfinished_bytes == 600)
        new, new_writer = await connect(port)
        new_writer.write(FRAME[:600])
        await until(lambda: connections._unfinished_bytes == 1200)
        old_writer.write(FRAME[600:620])
        await until(lambda: connections._unfinished_bytes == 1220)
        new_writer.write(FRAME[600:1000])
        assert await is_cut_off(old)
        new_writer.write(FRAME[1000:])
        assert await new.read(1)
        for writer in (old_writer, new_writer):
            writer.close()


@in_a_loop
async def test_unread_answers_have_a_budget_and_the_connection_with_most_is_closed_first() -> None:
    service = Echo(size=200_000)
    async with serving(service, PortLimits(memory_bytes=8 << 20, unread_bytes=1 << 20)) as (connections, port):
        greedy, greedy_writer = await connect(port)
        modest, modest_writer = await connect(port)
        for _ in range(300):
            greedy_writer.write(FRAME)
        await until(lambda: connections._kept_bytes > 1 << 20)
        (channel,) = set(service.channels)
        assert channel.is_congested
        asked = list[Command | None]()
        channel.ask(Command(7), asked.append)
        channel.send_one_way(Command(7))
        assert asked == [None]
        modest_writer.write(FRAME)
        assert await modest.read(1)
        connections.note_memory_change(9 << 20)
        assert await is_cut_off_after_rest(greedy)
        modest_writer.write(FRAME)
        assert await modest.read(1)
        for writer in (greedy_writer, modest_writer):
            writer.close()
        connections.note_memory_change(-(9 << 20))
        await until(lambda: not len(connections))
        assert connections._kept_bytes == 0


async def is_cut_off_after_rest(reader: asyncio.StreamReader) -> bool:
    """Return whether the port ends a connection, after the remaining bytes."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            while await reader.read(1 << 20):
                pass
        except ConnectionResetError:
            pass
        return True


@in_a_loop
async def test_connections_take_turns_if_one_has_many_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Echo()
    async with serving(service, PortLimits()) as (connections, port):
        _, many_writer = await connect(port)
        few, few_writer = await connect(port)
        await until(lambda: len(connections) == 2)
        monkeypatch.setattr("commitlake.broker_lite.server.connections.TURN_SECONDS", 0.0)
        frames = [serialize_command(Command(1, opaque=number)) for number in range(500)]
        many_writer.write(b"".join(frames))
        few_writer.write(frames[0])
        assert await few.read(1)
        await until(lambda: len(service.seen) == 501)
        ports = [port for port, _ in service.seen]
        assert [opaque for port, opaque in service.seen if ports.count(port) > 1] == list(range(500))
        assert ports.index(next(port for port in ports if ports.count(port) == 1)) < 400
        for writer in (many_writer, few_writer):
            writer.close()


@in_a_loop
async def test_connections_from_one_address_have_a_limit() -> None:
    async with serving(Echo(), PortLimits(connections_of_one=2)) as (connections, port):
        first = [await connect(port) for _ in range(2)]
        await until(lambda: len(connections) == 2)
        refused, writer = await connect(port)
        assert await is_cut_off(refused)
        for _, each in [*first, (None, writer)]:
            each.close()
