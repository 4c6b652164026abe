"""Reading a copy in an object store at a distance: with read-ahead, and one request after the other.

    python -m tests.benchmarks.distance                                     0.25 GiB, 30 ms, 50 MB/s a connection
    python -m tests.benchmarks.distance --gib 1 --milliseconds 100 --megabytes 90

A real S3 server on this machine is reached through a proxy, a process of its own, which holds back each request for the
given time, and sends each connection's answers no faster than the given rate. Passes of both kinds take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commitlake.connectors.formats.engine import read_ahead
from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.machine import machine
from tests.benchmarks.reading import ALL_BUT_BODY, find_splits, read_batches
from tests.benchmarks.runs import Figures, Name, Run, take_turns
from tests.servers.s3 import S3Server
from tests.support.corpus import make_corpora

_CHUNK_BYTES = 64 << 10
_COPY = "s3://logs/broker-a"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table; or be the proxy."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.distance", description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=0.25, help="size of the log (default: %(default)s)")
    parser.add_argument("--milliseconds", type=float, default=30, help="delay of a request (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=50, help="MB/s of a connection (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="passes of each kind (default: %(default)s)")
    parser.add_argument("--proxy-of", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    delay_seconds, rate = arguments.milliseconds / 1000, arguments.megabytes * 1e6
    if arguments.proxy_of:
        asyncio.run(_serve(arguments.proxy_of, delay_seconds, rate))
        return 0
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-distance-") as folder, S3Server(Path(folder)) as server:
        (corpus,) = make_corpora(Path(folder), arguments.gib, 1024, [1])
        os.environ.update(server.environment(), AWS_EC2_METADATA_DISABLED="true")
        server.client().create_bucket(Bucket="logs")
        run_commitlake(["ship", "--store", str(corpus.store), "--to", _COPY, "--once", "--quiet"])
        command = [sys.executable, "-m", "tests.benchmarks.distance", "--proxy-of", str(server.address[1])]
        command += ["--milliseconds", str(arguments.milliseconds), "--megabytes", str(arguments.megabytes)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as proxy:
            assert proxy.stdout is not None
            os.environ.update(server.environment(f"http://127.0.0.1:{proxy.stdout.readline().strip()}"))
            try:
                figures = _measure(arguments.runs)
            finally:
                proxy.terminate()
    table = Table("pass", "seconds", "MB/s", "messages/s")
    for name, figure in figures.items():
        each = " ".join(f"{seconds:.2f}" for seconds in figure.seconds)
        table.add_row(name.what, each, f"{figure.bytes_per_second / 1e6:.0f}", f"{figure.messages_per_second:,.0f}")
    Console(width=120).print(table)
    return 0


def _measure(runs: int) -> Figures:
    splits = find_splits(_COPY)

    def run(ranges: int) -> Run:
        read_ahead.MAX_RANGES_AHEAD = ranges
        started = time.perf_counter()
        messages = sum(batch.num_rows for split in splits for batch in read_batches(split, ALL_BUT_BODY))
        return Run(time.perf_counter() - started, sum(split.size for split in splits), messages)

    usual = read_ahead.MAX_RANGES_AHEAD
    steps = [
        (Name("distance", "with read-ahead", 1024), lambda: run(usual)),
        (Name("distance", "one request after the other", 1024), lambda: run(0)),
    ]
    return take_turns(steps, runs)


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
    sys.exit(main())
