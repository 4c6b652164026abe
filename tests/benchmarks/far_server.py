"""A distant S3 server: a proxy in front of a real one on this machine.

The proxy is a separate process. It delays each request, and limits the rate at which each connection's responses are
sent.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.s3 import S3Server

_CHUNK_BYTES = 64 << 10


@contextmanager
def at_a_distance(server: S3Server, milliseconds: float, megabytes: float) -> Iterator[None]:
    """Start the proxy, and name it as the server in the environment of this process.

    Args:
        server: the server.
        milliseconds: delay of a request.
        megabytes: MB/s of a connection.
    """
    command = [sys.executable, "-m", "tests.benchmarks.far_server", str(server.address[1])]
    command += [str(milliseconds / 1000), str(megabytes * 1e6)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        os.environ.update(server.environment(f"http://127.0.0.1:{proxy.stdout.readline().strip()}"))
        try:
            yield
        finally:
            proxy.terminate()


async def _serve(port: int, delay_seconds: float, rate: float) -> None:
    """Forward connections to a port of this machine, and print the port to connect to."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            _forward(reader, requests, delay_seconds, float("inf")),
            _forward(answers, writer, 0, rate),
            return_exceptions=True,
        )

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _forward(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, delay_seconds: float, rate: float
) -> None:
    loop = asyncio.get_running_loop()
    free_at = loop.time()
    while data := await source.read(_CHUNK_BYTES):
        free_at = max(free_at, loop.time()) + len(data) / rate
        await asyncio.sleep(max(delay_seconds, free_at - loop.time()))
        target.write(data)
        await target.drain()
    target.close()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])))
