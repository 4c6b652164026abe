"""Time of a dry run of a replay over a lake of many messages, from the command to its end.

    python -m tests.benchmarks.dry_runs                     10,000,000 messages
    python -m tests.benchmarks.dry_runs --messages 1000000

The lake's rows are those of a small archive, repeated with rising offsets, as an archive would write them. The target
is a broker_lite. The first run warms the page cache and is left out of the medians. Processor time shows how long a run
would take on an idle machine.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction
from rich.console import Console
from rich.table import Table

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile, write_data_file
from commitlake.schemas.tables.messages import STORE_DATE
from tests.benchmarks.machine import machine
from tests.servers.broker_lite import BrokerLite
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.replays import ReplayWorld, target_client

_SMALL = 20_000
_FILE_ROWS = 500_000
_DAY_US = 86_400_000_000
_CHOICES = {
    "all messages": ("--where", "true"),
    "one topic of five": ("--topic", "topic-01"),
    "20 minutes of one topic": ("--topic", "topic-01", "--from", "{day}T14:00", "--to", "{day}T14:20"),
    "one key": ("--key", "order-4711"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.dry_runs", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000, help="of the lake (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=4, help="of each choice (default: %(default)s)")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    table = Table("choice", "messages", "seconds", "processor seconds", "each run")
    with tempfile.TemporaryDirectory(prefix="commitlake-dry-runs-") as folder:
        lake, day = make_lake(Path(folder), arguments.messages)
        with BrokerLite(Path(folder, "target")) as server, target_client(server.name_server_address) as client:
            world = ReplayWorld(lake, server.name_server_address, client)
            world.make_topic(4)
            for name, choice in _CHOICES.items():
                command = [word.format(day=day) for word in choice]
                found = [dry_run(world, command) for _ in range(arguments.runs)]
                seconds = [run.seconds for run in found[1:]]
                busy = statistics.median(run.processor_seconds for run in found[1:])
                each = " ".join(f"{one:.2f}" for one in seconds)
                table.add_row(name, found[0].messages, f"{statistics.median(seconds):.2f}", f"{busy:.2f}", each)
    Console(width=120).print(table)
    return 0


def make_lake(folder: Path, messages: int) -> tuple[Lake, str]:
    """Return a lake with a number of messages, and the day on which all of them were stored."""
    growing = GrowingLake(folder)
    growing.write(shop_messages(_SMALL))
    growing.archive()
    table = DeltaTable(growing.lake.uri("messages"))
    rows = table.to_pyarrow_table().sort_by("physical_offset")
    day = str(rows.column(STORE_DATE.name)[0].as_py())
    copies = (messages - _SMALL) // _SMALL
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, {STORE_DATE.name: file.store_date}, now, True, file.statistics)
        for file in _files(growing.lake, rows, day, copies)
    ]
    table.create_write_transaction(actions, "append", table.schema(), [STORE_DATE.name])
    assert DeltaTable(growing.lake.uri("messages")).to_pyarrow_dataset().count_rows() == (copies + 1) * _SMALL
    return growing.lake, day


def _files(lake: Lake, rows: pa.Table, day: str, copies: int) -> Iterator[DataFile]:
    step = rows.column("physical_offset")[-1].as_py() + 1000
    times = rows.column("store_timestamp").cast(pa.int64())
    midnight = times[0].as_py() // _DAY_US * _DAY_US
    per_file = _FILE_ROWS // _SMALL
    for first in range(0, copies, per_file):
        parts = []
        for copy in range(first, min(copies, first + per_file)):
            # Each copy covers its share of the day, as in the log of a busy broker.
            shifted = pc.add(
                midnight + (copy + 1) * _DAY_US // (copies + 2), pc.divide(pc.subtract(times, midnight), copies + 2)
            )
            part = rows
            for name, column in {
                "physical_offset": pc.add(rows.column("physical_offset"), (copy + 1) * step),
                "queue_offset": pc.add(rows.column("queue_offset"), (copy + 1) * _SMALL),
                "store_timestamp": shifted.cast(rows.schema.field("store_timestamp").type),
            }.items():
                part = part.set_column(part.schema.get_field_index(name), name, column)
            parts.append(part.drop_columns([STORE_DATE.name]))
        by_queue = [("topic", "ascending"), ("queue_id", "ascending"), ("queue_offset", "ascending")]
        yield write_data_file(pa.concat_tables(parts).sort_by(by_queue), lake, day, f"part-{first:06d}.zstd.parquet")


class DryRun(NamedTuple):
    """Duration of a dry run, and the number of messages that it reports."""

    seconds: float
    processor_seconds: float
    messages: str


def dry_run(world: ReplayWorld, choice: Sequence[str]) -> DryRun:
    """Run a dry run in a separate process."""
    command = [sys.executable, "-m", "commitlake.jobs.cli.main", "replay", "--lake", world.lake.root, *choice]
    target = ["--namesrv", world.name_servers, "--to-topic", world.topic, "--queues", "key", "--dry-run", "--quiet"]
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, *target], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = next(line for line in done.stderr.splitlines() if " messages of " in line)
    return DryRun(seconds, busy, told.split(" messages")[0])


if __name__ == "__main__":
    sys.exit(main())
