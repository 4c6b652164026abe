"""Tests of one port for plain text and TLS: served and refused clients in each mode."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.server.connections import Connection, Connections
from commitlake.broker_lite.server.limits import PortLimits
from commitlake.schemas.remoting.codes import ResponseCode
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.tls import ServerTls, client_context, server_tls
from commitlake.schemas.remoting.tls_properties import TlsMode, TlsProperties, parse_tls_properties
from tests.support.certificates import Certificates

ASKED, MANY_ASKED = 1, 2
MANY_BYTES = 5 << 20
SECONDS = 20


class Echo:
    """A service that returns the body of a request, and whether the request was encrypted."""

    def handle(self, channel: Channel, request: Command) -> None:
        """Answer every request."""
        body = bytes(MANY_BYTES) if request.code == MANY_ASKED else bytes(request.body)
        fields = {"encrypted": str(channel.is_encrypted)}
        channel.send(request.reply(ResponseCode.SUCCESS, fields, body=body))

    def after_requests(self) -> None:
        """Do nothing."""

    def on_connection_lost(self, channel: Channel) -> None:
        """Do nothing."""


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> TlsProperties:
    """Return a server's and a client's settings."""
    return parse_tls_properties(Certificates(tmp_path_factory.mktemp("certificates")).server_properties(), {})


def in_mode(settings: TlsProperties, mode: str) -> ServerTls | None:
    """Return a port's TLS in a mode."""
    return server_tls(TlsProperties(server=settings.server, server_mode=TlsMode(mode)))


@contextlib.asynccontextmanager
async def serving(tls: ServerTls | None, **limits: Any) -> AsyncIterator[tuple[Connections, int]]:
    """Serve on a free port."""
    loop = asyncio.get_running_loop()
    connections = Connections(Echo(), PortLimits(**limits), loop, tls)
    server = await loop.create_server(lambda: Connection(connections), "127.0.0.1", 0)
    try:
        async with asyncio.timeout(SECONDS):
            yield connections, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        connections.close()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def connected(port: int, data: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """Open a connection, and send some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        yield reader
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(port: int, tls: ssl.SSLContext | None, code: int = ASKED, body: bytes = b"body") -> Command | None:
    """Send a request, and return its answer; None if the server ends the connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    except (OSError, ssl.SSLError):
        return None
    frames = FrameReader()
    writer.write(serialize_command(Command(code, {}, body)))
    try:
        while data := await reader.read(1 << 16):
            for command in frames.feed(data):
                return command
    except (OSError, ssl.SSLError):
        return None
    finally:
        writer.close()
    return None


def run(work: Coroutine[Any, Any, None], factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> None:
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(work)


@pytest.mark.parametrize("loop_module", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("mode", "serves_plain", "serves_tls"),
    [("permissive", True, True), ("enforcing", False, True)],
)
def test_the_mode_decides_which_clients_are_served(
    settings: TlsProperties, loop_module: str, mode: str, serves_plain: bool, serves_tls: bool
) -> None:
    async def work() -> None:
        context = client_context(settings)
        async with serving(in_mode(settings, mode)) as (_, port):
            for tls, is_served in ((None, serves_plain), (context, serves_tls)):
                answer = await ask(port, tls)
                assert (answer is not None) is is_served
                if answer is not None:
                    assert bytes(answer.body) == b"body"
                    assert answer.ext_fields["encrypted"] == str(tls is not None)

    run(work(), importlib.import_module(loop_module).new_event_loop)


def test_tls_is_refused_if_it_is_disabled(settings: TlsProperties) -> None:
    async def work() -> None:
        async with serving(in_mode(settings, "disabled")) as (_, port):
            assert await ask(port, client_context(settings)) is None
            assert await ask(port, None) is not None

    run(work())


def test_large_requests_and_answers_are_complete(settings: TlsProperties) -> None:
    async def work() -> None:
        context = client_context(settings)
        async with serving(in_mode(settings, "enforcing")) as (_, port):
            for code, body in ((ASKED, bytes(range(256)) * 10_000), (MANY_ASKED, b"")):
                answer = await ask(port, context, code, body)
                assert answer is not None
                assert bytes(answer.body) == (body or bytes(MANY_BYTES))

    run(work())


def test_only_clients_without_verification_accept_the_certificate_of_test_mode(settings: TlsProperties) -> None:
    async def work() -> None:
        test_mode = parse_tls_properties("tls.test.mode.enable=true", {})
        async with serving(server_tls(test_mode)) as (_, port):
            assert await ask(port, client_context(test_mode)) is not None
            assert await ask(port, client_context(settings)) is None

    run(work())


@pytest.mark.parametrize("data", [b"\x16", b"\x16\x03\x01\x00\x05", b"\x16" * 5000])
def test_an_unfinished_handshake_times_out(settings: TlsProperties, data: bytes) -> None:
    async def work() -> None:
        async with (
            serving(in_mode(settings, "permissive"), handshake_seconds=0) as (connections, port),
            connected(port, data) as reader,
            connected(port, b""),
        ):
            answer = asyncio.ensure_future(reader.read())
            while not answer.done():  # the client's bytes may not have arrived yet
                connections.close_idle_connections()
                await asyncio.sleep(0.01)
            assert not (await answer).startswith(b"\0")  # at most an alert
            while not len(connections):
                await asyncio.sleep(0.01)
            # The other one may still speak plain text.
            connections.close_idle_connections()
            assert len(connections) == 1

    run(work())


def test_a_silent_connection_times_out_if_tls_is_enforced(settings: TlsProperties) -> None:
    async def work() -> None:
        async with (
            serving(in_mode(settings, "enforcing"), handshake_seconds=0) as (connections, port),
            connected(port, b"") as reader,
        ):
            while not len(connections):
                await asyncio.sleep(0.01)
            connections.close_idle_connections()
            assert await reader.read() == b""

    run(work())


def test_handshakes_count_as_connections(settings: TlsProperties) -> None:
    async def work() -> None:
        async with (
            serving(in_mode(settings, "permissive"), connections_of_one=1) as (connections, port),
            connected(port, b"\x16"),
        ):
            while not len(connections):
                await asyncio.sleep(0.01)
            assert await ask(port, client_context(settings)) is None

    run(work())
