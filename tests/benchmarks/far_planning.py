"""Time and memory to plan an archive run over many copies in an object store at a distance.

    python -m tests.benchmarks.far_planning                                 1,250 brokers, 30 ms a request
    python -m tests.benchmarks.far_planning --brokers 200 --milliseconds 100

The copies have small segments, because requests take most of the time, and planning reads only the ends of segments.
One copy is made by `ship`, and duplicated within the server. The copies are archived without the delay. A run that
finds nothing new is a whole `archive --local`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.table import Table

from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.far_server import at_a_distance
from tests.benchmarks.machine import machine
from tests.servers.s3 import S3Server
from tests.support.corpus import json_bodies, shop_batches

_SEGMENT_BYTES = 64 << 10
_FIRST, _STORES = "s3://logs/b-0000", "s3://logs/{broker}"
_PLANNING = "tests.benchmarks.planning"
_MEGABYTES = 50


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.far_planning", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--brokers", type=int, default=1250, help="number of stores (default: %(default)s)")
    parser.add_argument("--segments", type=int, default=8, help="of each store (default: %(default)s)")
    parser.add_argument("--milliseconds", type=float, default=30, help="delay of a request (default: %(default)s)")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    table = Table("run", "brokers", "segments", "seconds", "processor seconds", "largest memory, MiB")
    with tempfile.TemporaryDirectory(prefix="commitlake-far-") as folder, S3Server(Path(folder)) as server:
        _write_store(Path(folder) / "store", arguments.segments)
        os.environ.update(server.environment(), AWS_EC2_METADATA_DISABLED="true")
        server.client().create_bucket(Bucket="logs")
        run_commitlake(["ship", "--store", str(Path(folder) / "store"), "--to", _FIRST, "--once", "--quiet"])
        _copy(server, arguments.brokers)
        lake = str(Path(folder) / "lake")
        run = ["archive", "--store", _STORES, "--lake", lake, "--local", "--quiet"]
        plan = ["--measure", _STORES]
        run_commitlake(run)
        with at_a_distance(server, arguments.milliseconds, _MEGABYTES):
            for name, words, module in (
                ("plan of the first run", [*plan, str(Path(folder) / "empty")], _PLANNING),
                ("plan that finds nothing new", [*plan, lake], _PLANNING),
                ("run that finds nothing new", run, "commitlake.jobs.cli.main"),
            ):
                figures = [f"{figure:,.1f}" for figure in run_commitlake(words, module=module)]
                table.add_row(name, f"{arguments.brokers:,}", f"{arguments.brokers * arguments.segments:,}", *figures)
    Console(width=120).print(table)
    return 0


def _write_store(folder: Path, segments: int) -> None:
    options = StoreOptions(segment_size_bytes=_SEGMENT_BYTES, index_slots=1000, index_entries=4000, keep_index=False)
    with MessageStore.open(folder, options) as store:
        for batch in shop_batches(json_bodies(1 << 10)):
            if store.put_batch(batch[:20])[0].physical_offset >= (segments - 1) * _SEGMENT_BYTES:
                break


def _copy(server: S3Server, brokers: int) -> None:
    """Copy the objects of the first copy to the prefixes of the others."""
    client = server.client()
    found = client.get_paginator("list_objects_v2").paginate(Bucket="logs")
    names = [each["Key"].split("/", 1)[1] for page in found for each in page["Contents"]]

    def copy(number: int) -> None:
        for name in names:
            source = {"Bucket": "logs", "Key": f"b-0000/{name}"}
            client.copy_object(Bucket="logs", Key=f"b-{number:04}/{name}", CopySource=source)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(copy, range(1, brokers)))


if __name__ == "__main__":
    sys.exit(main())
