"""Look-ups in lakes of a million messages and more, timed as whole commands.

    python -m tests.benchmarks.lookups                                     1 and 10 million messages, Delta
    python -m tests.benchmarks.lookups --messages 1000000 --dir /data/bench   keeps the lakes for the next time

The lakes are made as rows, by the code that writes an archive's data files: a million messages a day of one broker,
twenty topics, 1,000 rows of one key for every 250 others. Each look-up is a `commitlake query` in a process of its own,
from the start of Python to its end, for a key, an offset message id and a unique key that are drawn at random. Python
may keep its bytecode, as in an installation; the first of the commands writes it and is not counted.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress
from commitlake.connectors.lake.committer import commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile, sort_rows, write_data_file
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.runtime.local_runner import ProcessRunner
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from tests.benchmarks.machine import machine
from tests.support.hbase_tables import SCHEMA

BROKER = "broker-a"
HOST = Host.of("10.0.0.1", 10911)
FIRST_DAY = datetime.date(2026, 11, 1)
DAY = 1_000_000
FILE_ROWS = 125_000
RECORD_BYTES = 1000
TOPICS = 20
KEYS_EACH = 4
LOOK_UPS = 100


def main(argv: Sequence[str] | None = None) -> int:
    """Make the lakes, time the look-ups, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lookups", description=__doc__)
    parser.add_argument("--messages", default="1000000,10000000", help="comma-separated")
    parser.add_argument("--look-ups", type=int, default=LOOK_UPS)
    parser.add_argument("--dir", type=Path, help="where the lakes are kept")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-lookups-") as folder:
        for messages in map(int, arguments.messages.split(",")):
            lake = Lake(str((arguments.dir or Path(folder)) / f"lake-{messages}"))
            if not Path(lake.uri("messages")).exists():
                make_lake(lake, messages)
            time_look_ups(lake, messages, arguments.look_ups)
    return 0


def make_lake(lake: Lake, messages: int) -> None:
    """Archive a number of messages day by day, and update `message_keys`."""
    open_messages_for_append(lake)
    before = ArchiveCommit(0, "")
    for first in range(0, messages, DAY):
        count = min(DAY, messages - first)
        day = FIRST_DAY + datetime.timedelta(days=first // DAY)
        files = [
            _write(lake, day, start, min(FILE_ROWS, first + count - start))
            for start in range(first, first + count, FILE_ROWS)
        ]
        start, end = first * RECORD_BYTES, (first + count) * RECORD_BYTES
        commit = ArchiveCommit(
            before.sequence + 1, f"run-{first}", {BROKER: StoreProgress(end)}, {BROKER: CommittedRange(start, end)}
        )
        before = commit_run(lake, files, commit, before.stores)
        began = time.monotonic()
        followed = follow_keys(lake, ProcessRunner())
        print(f"{first + count:,} messages; keys: {followed.rows:,} in {time.monotonic() - began:.1f} s", flush=True)


def _write(lake: Lake, day: datetime.date, first: int, count: int) -> DataFile:
    rows = _rows(day, first, count)
    name = f"part-{first:012d}.zstd.parquet"
    return write_data_file(sort_rows(rows.drop_columns("store_date")), lake, day.isoformat(), name)


def order_of(number: int) -> str:
    """Return the key of a message; four messages far apart share a key."""
    return (
        f"order-{number * 2654435761 % (1 << 32) // KEYS_EACH % (1 << 30)}" if number % 5 else f"order-{number // 20}"
    )


def unique_key_of(number: int) -> str:
    """Return a client's id, made of its host and process, the time and a counter."""
    return f"C0A8{number % 16:04X}1F9018B4AAC2{number >> 16:08X}{number & 0xFFFF:04X}"


def _rows(day: datetime.date, first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    number: Array = np.arange(first, first + count)
    midnight = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    stored = int(midnight.timestamp()) * 1_000_000 + (number % DAY) * 86_400
    topics = pa.DictionaryArray.from_arrays(
        pa.array((number * 7919 % TOPICS).astype(np.int32)), pa.array([f"topic-{each:02}" for each in range(TOPICS)])
    )
    keys = pa.array([order_of(each) for each in numbers])
    unique_keys = pa.array([unique_key_of(each) for each in numbers])
    names = pa.array(["KEYS", "UNIQ_KEY", "CLUSTER", "WAIT"] * count)
    values = pa.array([text for key, uniq in zip(keys, unique_keys, strict=True)
                       for text in (key.as_py(), uniq.as_py(), "DefaultCluster", "true")])  # fmt: skip
    offsets = pa.array(np.arange(0, 4 * count + 1, 4, dtype=np.int32))
    times = pa.array(stored, pa.timestamp("us", "UTC"))
    given: dict[str, pa.Array] = {
        "broker": pa.array([BROKER] * count).dictionary_encode(),
        "physical_offset": pa.array(number * RECORD_BYTES),
        "size": pa.array(np.full(count, RECORD_BYTES)),
        "topic": topics,
        "queue_id": pa.array(number % 8),
        "queue_offset": pa.array(number // 8),
        "msg_id": pa.array([serialize_message_id(HOST, RECORD_BYTES * each) for each in numbers]),
        "unique_key": unique_keys,
        "keys": pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32)), keys),
        "tags": pa.array(["new"] * count).dictionary_encode(),
        "kind": pa.array(["normal"] * count).dictionary_encode(),
        "born_timestamp": times,
        "store_timestamp": times,
        "properties": pa.MapArray.from_arrays(offsets, names, values),
        "body_size": pa.array(np.full(count, 700)),
        "body_crc": pa.array(number * 31 % (1 << 31)),
        "body_codec": pa.array(["none"] * count).dictionary_encode(),
    }
    columns = []
    for field in SCHEMA:
        column = given.get(field.name)
        if column is None:
            columns.append(pa.nulls(count, field.type))
        else:
            columns.append(column if pa.types.is_dictionary(column.type) else pc.cast(column, field.type))
    return pa.table(columns, names=SCHEMA.names)


def time_look_ups(lake: Lake, messages: int, times: int) -> None:
    """Time each kind of look-up in turn."""
    chance = random.Random(4711)
    took: dict[str, list[float]] = {}
    used: dict[str, list[float]] = {}
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for turn in range(times + 1):
        number = chance.randrange(messages)
        ways = {
            "business key": ["--key", order_of(number)],
            "offset message id": ["--id", serialize_message_id(HOST, RECORD_BYTES * number)],
            "unique key": ["--id", unique_key_of(number)],
            "key that is not there": ["--key", f"none-{number}"],
        }
        for way, arguments in ways.items():
            command = [sys.executable, "-m", "commitlake.jobs.cli.main", "query", "--lake", lake.root, *arguments]
            began, cpu = time.perf_counter(), _processor_seconds()
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            if turn:
                took.setdefault(way, []).append(time.perf_counter() - began)
                used.setdefault(way, []).append(_processor_seconds() - cpu)
            is_found = "no matching messages" not in done.stderr
            assert is_found is (way != "key that is not there"), (way, number, done.stdout, done.stderr)
    for way, seconds in took.items():
        cuts = statistics.quantiles(seconds, n=100, method="inclusive")
        print(
            f"{messages:,} messages, Delta, {way}: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, "
            f"least {min(seconds):.2f} s; processor time: p50 {statistics.median(used[way]):.2f} s ({times} look-ups)",
            flush=True,
        )


def _processor_seconds() -> float:
    """Return the processor time of all commands that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
