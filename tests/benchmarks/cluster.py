"""An archive on a standalone cluster beside one on this machine, and the cold start of an executor.

    python -m tests.benchmarks.cluster                      a store of 1 GiB, bodies of 1 KiB, three runs
    python -m tests.benchmarks.cluster --gib 2 --runs 5

The cluster has two workers with a core each, on the same two cores as the runs beside it, and neither CommitLake nor
its packages: each executor fetches and unpacks them. Spark's event log shows how long this and the first task take.
The store is also archived from its copy in a real S3 server on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.machine import machine
from tests.servers.s3 import S3Server
from tests.servers.spark_cluster import SparkCluster
from tests.support.corpus import Corpus, make_corpora

_SUBMIT = str(Path(__file__).parents[2] / "spark-submit.sh")
_MEMORY = ("--executor-memory", "1g")
_COPY = "s3://logs/broker-a"


class ColdStart(NamedTuple):
    """Times of an executor, in seconds.

    Attributes:
        to_executor: from the application's start until the executor has registered: its JVM has started, and has
            fetched and unpacked the environment.
        first_task: its first task, in which Python starts and loads packages and compiled code.
        later_task: the median of its other tasks.
    """

    to_executor: float
    first_task: float
    later_task: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.cluster", description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1, help="size of the log (default: %(default)s)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind, in turns (default: %(default)s)")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-cluster-") as folder:
        (corpus,) = make_corpora(Path(folder), arguments.gib, arguments.body, [1])
        with S3Server(Path(folder) / "s3") as server:
            os.environ.update(server.environment(), AWS_EC2_METADATA_DISABLED="true")
            server.client().create_bucket(Bucket="logs")
            run_commitlake(["ship", "--store", str(corpus.store), "--broker", "a", "--to", _COPY, "--once", "--quiet"])
            with SparkCluster(Path(folder) / "cluster", environment=server.environment()) as cluster:
                _measure(corpus, cluster.master, Path(folder), arguments.runs)
    return 0


def _measure(corpus: Corpus, master: str, folder: Path, runs: int) -> None:
    events = folder / "events"
    events.mkdir()
    logged = {"enabled": "true", "dir": events.as_uri(), "compress": "false", "rolling.enabled": "false"}
    settings = [word for name, value in logged.items() for word in ("--conf", f"spark.eventLog.{name}={value}")]
    store = str(corpus.store)
    on_cluster = ["--master", master, *_MEMORY, *settings, "archive", "--store"]
    ways = {
        "cluster, two workers": [*on_cluster, store],
        "cluster, copy in S3": [*on_cluster, _COPY],
        "Spark on this machine": ["--master", "local[2]", "archive", "--store", store],
        "--local": ["archive", "--local", "--store", store],
        "--local, copy in S3": ["archive", "--local", "--store", _COPY],
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(-1, runs):  # the first run packs the environment, and is not counted
        for number, (name, words) in enumerate(ways.items()):
            seconds = _archive(words, folder / f"lake-{run}-{number}")
            if run >= 0:
                taken[name].append(seconds)
    table = Table("archive", "seconds, median", "messages/s", "beside --local")
    least = statistics.median(taken["--local"])
    for name, found in taken.items():
        median = statistics.median(found)
        table.add_row(name, f"{median:.1f}", f"{corpus.messages / median:,.0f}", f"{median / least:.2f}")
    Console(width=120).print(table)
    starts = [start for log in sorted(events.iterdir()) for start in cold_starts(log.read_text().splitlines())]
    table = Table("an executor's cold start", "median", "from", "to")
    for name, times in zip(ColdStart._fields, zip(*starts, strict=True), strict=True):
        figures = (statistics.median(times), min(times), max(times))
        table.add_row(name.replace("_", " "), *(f"{figure:.1f} s" for figure in figures))
    Console(width=120).print(table)


def _archive(words: Sequence[str], lake: Path) -> float:
    places = ["--broker", "a", "--lake", str(lake), "--quiet"]
    begun = time.perf_counter()
    subprocess.run([_SUBMIT, *words, *places], check=True, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    return time.perf_counter() - begun


def cold_starts(lines: Sequence[str]) -> list[ColdStart]:
    """Return the times of each executor that had more than one task, from the lines of an event log."""
    events = [json.loads(line) for line in lines]
    (begun,) = (event["Timestamp"] for event in events if event["Event"] == "SparkListenerApplicationStart")
    found = []
    for added in events:
        if added["Event"] != "SparkListenerExecutorAdded":
            continue
        tasks = [
            event["Task Info"]
            for event in events
            if event["Event"] == "SparkListenerTaskEnd" and event["Task Info"]["Executor ID"] == added["Executor ID"]
        ]
        tasks.sort(key=lambda task: task["Launch Time"])
        times = [task["Finish Time"] - task["Launch Time"] for task in tasks]
        if len(times) > 1:
            to_executor = added["Timestamp"] - begun
            found.append(ColdStart(*(each / 1000 for each in (to_executor, times[0], statistics.median(times[1:])))))
    return found


if __name__ == "__main__":
    sys.exit(main())
