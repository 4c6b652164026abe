"""Rate of RocketMQ's Java producer to a real broker, and to broker_lite, in turns on this machine.

    python -m tests.benchmarks.sends                     sync by 1 and by 8 threads, async, batches; 1 KB bodies
    python -m tests.benchmarks.sends --ways async --messages 400000

The producer and the broker share this machine's cores. Each turn starts a server on a new store, and the
producer first sends a tenth of its messages as a warm-up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.machine import machine
from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import Row, run_java
from tests.servers.rocketmq import FAST_JVM, VERSIONS, RocketMQ

Server = RocketMQ | BrokerLite
WAYS = {"sync": ("sync", 1), "sync-8": ("sync", 8), "async": ("async", 1), "batch": ("batch", 1)}
"""By name: the program's mode, and its number of threads."""
_SYNC_SHARE = 10  # a round trip is slow, so fewer messages are enough
_JVM = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sends", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--version", default=VERSIONS[0], help="of the client and the real broker (default: %(default)s)"
    )
    parser.add_argument("--messages", type=int, default=200_000, help="of async and batch (default: %(default)s)")
    parser.add_argument("--bytes", type=int, default=1024, help="of a body (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="turns of each (default: %(default)s)")
    parser.add_argument("--ways", default=",".join(WAYS), help="default: %(default)s")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print medians."""
    arguments = build_parser().parse_args(argv)
    ways = [name for name in arguments.ways.split(",") if name in WAYS]
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for run in range(arguments.runs):
        for name, start in servers(arguments.version).items():
            with tempfile.TemporaryDirectory(prefix="commitlake-sends-") as folder, start(Path(folder)) as server:
                for way in ways:
                    row = send(server.name_server_address, arguments.version, way, arguments.messages, arguments.bytes)
                    found[way, name].append(row)
                    told = f"{way}: {rate(row):,.0f} messages/s, {row['failed']} failed"
                    print(f"run {run + 1}, {name}, {told}", file=sys.stderr, flush=True)
    print_report(ways, list(servers(arguments.version)), found)
    return 1 if any(row["failed"] for rows in found.values() for row in rows) else 0


def servers(version: str) -> dict[str, Callable[[Path], AbstractContextManager[Server]]]:
    """Return functions that start each server with its default settings."""
    return {
        f"RocketMQ {version}": lambda folder: RocketMQ(version, folder, jvm=FAST_JVM),
        "broker_lite": lambda folder: BrokerLite(folder, options=()),
    }


def send(address: str, version: str, way: str, messages: int, size: int) -> Row:
    """Return the producer's output of one turn, to the broker whose name server has an address."""
    how, threads = WAYS[way]
    count = messages // _SYNC_SHARE if how == "sync" else messages
    arguments = [address, f"Load-{way}", how, str(count), str(size), str(threads)]
    (row,) = run_java(version, "SendLoad", arguments, timeout_seconds=900, jvm=_JVM)
    return row


def rate(row: Row) -> float:
    """Return the acknowledged messages per second."""
    return float(row["acknowledged"] * 1000 / max(1, row["ms"]))


def print_report(ways: Sequence[str], names: Sequence[str], found: dict[tuple[str, str], list[Row]]) -> None:
    """Print medians, and the ratio of the second server to the first."""
    table = Table("way", "server", "messages/s", "ratio", "p50 ms", "p99 ms", "p99.9 ms")
    for way in ways:
        first = statistics.median(map(rate, found[way, names[0]]))
        for name in names:
            rows = found[way, name]
            middle = statistics.median(map(rate, rows))
            latencies = [f"{statistics.median(row[each] for row in rows) / 1000:.2f}" for each in
                         ("p50_us", "p99_us", "p999_us")]  # fmt: skip
            table.add_row(way, name, f"{middle:,.0f}", f"{middle / first:.2f}", *latencies)
    Console(width=120).print(table)


if __name__ == "__main__":
    sys.exit(main())
