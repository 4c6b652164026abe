"""Reading a copy in an object store at a distance: with read-ahead, and one request after the other.

    python -m tests.benchmarks.distance                                     0.25 GiB, 30 ms, 50 MB/s a connection
    python -m tests.benchmarks.distance --gib 1 --milliseconds 100 --megabytes 90

The server is a real one on this machine, behind the proxy of `far_server`. Passes of both kinds take turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commitlake.connectors.reading.files import read_ahead
from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.far_server import at_a_distance
from tests.benchmarks.machine import machine
from tests.benchmarks.reading import ALL_BUT_BODY, find_splits, read_batches
from tests.benchmarks.runs import Figures, Name, Run, take_turns
from tests.servers.s3 import S3Server
from tests.support.corpus import make_corpora

_COPY = "s3://logs/broker-a"


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.distance", description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=0.25, help="size of the log (default: %(default)s)")
    parser.add_argument("--milliseconds", type=float, default=30, help="delay of a request (default: %(default)s)")
    parser.add_argument("--megabytes", type=float, default=50, help="MB/s of a connection (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="passes of each kind (default: %(default)s)")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-distance-") as folder, S3Server(Path(folder)) as server:
        (corpus,) = make_corpora(Path(folder), arguments.gib, 1024, [1])
        os.environ.update(server.environment(), AWS_EC2_METADATA_DISABLED="true")
        server.client().create_bucket(Bucket="logs")
        run_commitlake(["ship", "--store", str(corpus.store), "--to", _COPY, "--once", "--quiet"])
        with at_a_distance(server, arguments.milliseconds, arguments.megabytes):
            figures = _measure(arguments.runs)
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


if __name__ == "__main__":
    sys.exit(main())
