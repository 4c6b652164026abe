"""Rate of a replay to a real broker, compared with RocketMQ's Java producer, in turns on this machine.

    python -m tests.benchmarks.replays                     400,000 messages of 1 KiB, three turns
    python -m tests.benchmarks.replays --messages 100000 --runs 1
    python -m tests.benchmarks.replays --tasks 1 2         also by 1 task and by 2 tasks on Spark, in local mode
    python -m tests.benchmarks.replays --tasks 1 2 --connection-mb 5    to a distant broker: MB/s of each connection

Replay, producer and broker share this machine's cores. Each turn starts a broker on a new store. The Java
producer sends as many messages of the same size, without keys and properties, one by one with 1,000 in flight (async)
and 32 at a time (batch), after a warm-up of a tenth. The replay is timed twice: from its first to its last message,
and from the command to its end, with the start of Python, the plan and the ledger. Another replay sends the same
without writing the outcome of messages to the ledger.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.formatted_counts import format_count
from tests.benchmarks.machine import machine
from tests.benchmarks.sends import rate, send
from tests.servers.delaying_proxy import DelayingProxy, Faults
from tests.servers.rocketmq import FAST_JVM, VERSIONS, RocketMQ
from tests.support.corpus import make_corpora
from tests.support.replays import ReplayWorld, target_client

SENT, COMMAND, FIRST = "replay, first to last message", "replay, the whole command", "seconds to the first message"
_QUEUES = 8
_JOB = (sys.executable, "-m", "commitlake.jobs.cli.main")
_WITHOUT_LEDGER = """
import sys
from commitlake.jobs.cli.main import main
from commitlake.pipelines.replay.ledger import Ledger
Ledger.add_outcomes = lambda *_: None
sys.exit(main(sys.argv[1:]))
"""
_CHUNK_MB = 65_536 / 1e6
"""Size of what the proxy forwards at a time."""
_JOB_ON_SPARK = (sys.executable, "-m", "commitlake.jobs.launch.submit")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.replays", description=__doc__.splitlines()[0])
    parser.add_argument("--version", default=VERSIONS[0], help="of the client and the broker (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=400_000, help="of a turn (default: %(default)s)")
    parser.add_argument("--bytes", type=int, default=1024, help="of a body (default: %(default)s)")
    parser.add_argument(
        "--tasks", type=int, nargs="*", default=[], help="also send by so many tasks on Spark (default: none)"
    )
    parser.add_argument(
        "--connection-mb", type=float, help="MB/s that a connection to the broker can take (default: no limit)"
    )
    parser.add_argument("--runs", type=int, default=3, help="turns of each (default: %(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print medians."""
    arguments = build_parser().parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="commitlake-replays-") as folder:
        lake = make_lake(Path(folder), arguments.messages, arguments.bytes)
        for run in range(arguments.runs):
            turn = {
                **replay(arguments, Path(folder, f"replay-{run}"), lake, _JOB),
                f"{SENT}, without ledger": replay(
                    arguments, Path(folder, f"alone-{run}"), lake, (sys.executable, "-c", _WITHOUT_LEDGER)
                )[SENT],
                **{
                    f"{SENT}, {format_count(tasks, 'task')}": replay(
                        arguments,
                        Path(folder, f"tasks-{run}-{tasks}"),
                        lake,
                        (*_JOB_ON_SPARK, "--master", f"local[{tasks}]"),
                        "--spark",
                    )[SENT]
                    for tasks in arguments.tasks
                },
                **produce(arguments, Path(folder, f"java-{run}")),
            }
            for name, value in turn.items():
                found[name].append(value)
            print(f"run {run + 1}: {turn}", file=sys.stderr, flush=True)
    print_report(found)
    return 0


def make_lake(folder: Path, messages: int, size: int) -> Lake:
    """Archive a store with at least a number of messages."""
    gib = messages * (size + 250) / (1 << 30)
    (corpus,) = make_corpora(folder / "store", gib, size, [1])
    lake = folder / "lake"
    command = [*_JOB, "archive", "--store", str(corpus.store), "--broker", "broker-a", "--lake", str(lake)]
    subprocess.run([*command, "--local", "--quiet"], check=True)
    return Lake(str(lake))


def replay(
    arguments: argparse.Namespace, folder: Path, lake: Lake, job: Sequence[str], *options: str
) -> dict[str, float]:
    """Send with a replay, in its process or by tasks on Spark, and return messages per second."""
    with RocketMQ(arguments.version, folder, jvm=FAST_JVM) as server, reach(server, arguments) as address:
        with target_client(server.name_server_address) as client:
            world = ReplayWorld(lake, server.name_server_address, client)
            world.make_topic(_QUEUES)
        command = [*job, "replay", "--lake", lake.root, "--where", "true", "--limit", str(arguments.messages), "--yes"]
        command += ["--quiet", "--no-verify", *options]
        target = ["--namesrv", address, "--to-topic", world.topic, "--queues", "key"]
        begun = time.time()
        subprocess.run([*command, *target], check=True)
        seconds = time.time() - begun
        with target_client(server.name_server_address) as client:
            stored = [
                message.store_timestamp / 1000
                for queue in client.puller.queues(world.topic)
                for end in [client.puller.max_offset(queue)]
                for place in (0, end - 1)
                for message in client.puller.read(queue, place, place + 1)
            ]
    return {
        SENT: arguments.messages / (max(stored) - min(stored)),
        COMMAND: arguments.messages / seconds,
        FIRST: min(stored) - begun,
    }


@contextmanager
def reach(server: RocketMQ, arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the address of the broker's name server, or that of a proxy whose connections are slow."""
    if not arguments.connection_mb:
        yield server.name_server_address
        return
    slow = Faults(hold=1, hold_seconds=_CHUNK_MB / arguments.connection_mb)
    with DelayingProxy(server.name_server_address, server.broker_address, slow) as proxy:
        yield proxy.name_server_address


def produce(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Send with the Java producer, and return messages per second."""
    with RocketMQ(arguments.version, folder, jvm=FAST_JVM) as server, reach(server, arguments) as address:
        return {
            f"Java, {way}": rate(send(address, arguments.version, way, arguments.messages, arguments.bytes))
            for way in ("async", "batch")
        }


def print_report(found: dict[str, list[float]]) -> None:
    """Print medians, and the ratio of each to Java's async producer."""
    table = Table("what", "messages/s", "beside Java, async", "each run")
    first = statistics.median(found["Java, async"])
    for name, values in found.items():
        if name != FIRST:
            middle = statistics.median(values)
            each = ", ".join(f"{value:,.0f}" for value in values)
            table.add_row(name, f"{middle:,.0f}", f"{middle / first:.2f}", each)
    Console(width=120).print(table)
    print(f"{FIRST}: {statistics.median(found[FIRST]):.1f}")


if __name__ == "__main__":
    sys.exit(main())
