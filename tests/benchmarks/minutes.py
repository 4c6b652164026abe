"""Time of `tps` over a year of minutes, and over many messages by the second, from the command to its end.

    python -m tests.benchmarks.minutes                                          a year of minutes, 10 million messages
    python -m tests.benchmarks.minutes --messages 100000000 --dir /data/bench   keeps the lake for the next time

The lake is made as rows, by the code that writes an archive's data files: a row of `topic_minutes` for each minute of
2025 and each of twenty topics, ten messages each on average, one file a week, as after `maintain`; and rows of
`messages`, all of them on the last day of that year. Each question is a `commitlake tps` in a process of its own, cold:
from the start of Python to its end. Times are the minimum and the median of all runs but the first, which reads the
files into the page cache. Processor time shows how long a run would take on an idle machine.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import ArchiveCommit, CommittedRange, StoreProgress
from commitlake.connectors.lake.committer import append_files, commit_run, open_messages_for_append
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile, sort_rows, write_data_file
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.connectors.numpy_arrays import Array
from commitlake.pipelines.topic_minutes.minute_counts import SCHEMA as MINUTES_SCHEMA
from commitlake.pipelines.topic_minutes.minute_counts import sketch_groups, write_minutes_file
from commitlake.schemas.tables.archive_runs import ARCHIVE_RUNS
from commitlake.schemas.tables.messages import MESSAGES, STORE_DATE
from tests.benchmarks.commands import CommandRun, run_commitlake
from tests.benchmarks.machine import machine

BROKER = "broker-a"
TOPICS = 20
QUEUES = 8
MESSAGES_A_ROW = 10
WEEK = 7 * 24 * 60
YEAR = 365 * 24 * 60
RECORD_BYTES = 1000
FILE_ROWS = 500_000
RUN_ID = "run-1"
_START = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_LAST_DAY = _END - datetime.timedelta(days=1)
_HALF_PART = 50
"""One in this many messages is a half message."""
_MESSAGE_COLUMNS = pa.schema([field for field in arrow_schema(MESSAGES) if field.name != STORE_DATE.name])
_PROPERTIES = {"UNIQ_KEY": "C0A80001000118B4AAC2", "KEYS": "order-4711", "CLUSTER": "DefaultCluster", "WAIT": "true"}
_YEAR = ("--from", "2025-01-01", "--to", "2026-01-01")
_DAY = ("--from", "2025-12-31", "--to", "2026-01-01")
_QUESTIONS = {
    "a year by topic": _YEAR,
    "a year by topic and day": (*_YEAR, "--window", "1d"),
    "a month by topic": ("--from", "2025-11-01", "--to", "2025-12-01"),
    "a year by topic, with percentiles": (*_YEAR, "--percentiles"),
    "a month by topic, with percentiles": ("--from", "2025-11-01", "--to", "2025-12-01", "--percentiles"),
    "a day by topic and hour, with percentiles": (*_DAY, "--window", "1h", "--percentiles"),
    "all messages by second": (*_DAY, "--window", "1s", "--by", "none"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Make the lake, and measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.minutes", description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=10_000_000, help="of one day (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=4, help="of each question (default: %(default)s)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only questions whose names contain this")
    parser.add_argument("--dir", metavar="DIR", help="make the lake here, and keep it")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="commitlake-minutes-") as folder:
        lake = Lake(arguments.dir or folder)
        if not Path(lake.root, "messages").exists():
            make_lake(lake, arguments.messages)
        for name, question in _QUESTIONS.items():
            if arguments.only not in name:
                continue
            runs = [_run(lake, question) for _ in range(arguments.runs)]
            seconds, busy, mib = zip(*(run for run, _ in runs[1:] or runs), strict=True)
            print(
                f"{name}: {min(seconds):.2f} s (median {statistics.median(seconds):.2f}), {min(busy):.2f} s of "
                f"processor time (median {statistics.median(busy):.2f}), {max(mib):.0f} MiB, {runs[0][1]:,} rows",
                flush=True,
            )
    return 0


def _run(lake: Lake, question: Sequence[str]) -> tuple[CommandRun, int]:
    """Return the time of a command, and the number of rows that it printed."""
    with tempfile.TemporaryFile() as answer:
        run = run_commitlake(["tps", "--lake", lake.root, "--quiet", *question, "--format", "csv"], answer)
        answer.seek(0)
        return run, sum(1 for _ in answer) - 1


def make_lake(lake: Lake, messages: int) -> None:
    """Write a lake with a year of minutes and a number of messages, as one archive run."""
    open_messages_for_append(lake)
    files = [
        _messages_file(lake, first, min(FILE_ROWS, messages - first), messages)
        for first in range(0, messages, FILE_ROWS)
    ]
    end = messages * RECORD_BYTES
    commit = ArchiveCommit(1, RUN_ID, {BROKER: StoreProgress(end)}, {BROKER: CommittedRange(0, end)})
    commit_run(lake, files, commit, {})
    weeks = [_minutes_file(lake, start, min(WEEK, YEAR - start)) for start in range(0, YEAR, WEEK)]
    append_files(lake, "topic_minutes", weeks, 1)
    run = {"sequence": 1, "run_id": RUN_ID, "started_at": _END, "finished_at": _END, "stores": 1, "messages": messages}
    rows = pa.Table.from_pylist([run], arrow_schema(ARCHIVE_RUNS))
    append_files(lake, "archive_runs", [write_plain_file(rows, lake, "archive_runs", "run.parquet")], 1)


def _topics(numbers: Array) -> pa.DictionaryArray:
    names = pa.array([f"topic-{number:02d}" for number in range(TOPICS)])
    return pa.DictionaryArray.from_arrays(pa.array(numbers.astype(np.int32)), names)


def _constant(value: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([value]))


def _times(microseconds: Array) -> pa.Array:
    return pa.array(microseconds).cast(pa.timestamp("us", "UTC"))


def _minutes_file(lake: Lake, first: int, minutes: int) -> DataFile:
    """Write the rows of consecutive minutes of the year."""
    count = minutes * TOPICS
    chance = np.random.default_rng(first)
    minute = np.tile(np.arange(first, first + minutes), TOPICS)
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(1 + chance.poisson(MESSAGES_A_ROW - 1, count), out=starts[1:])
    sizes = np.rint(chance.lognormal(6.5, 0.5, starts[-1]))
    latencies = np.rint(chance.lognormal(2, 1, starts[-1]))
    messages = np.diff(starts)
    total = np.add.reduceat(sizes, starts[:-1]).astype(np.int64)
    begins = int(_START.timestamp() * 1e6) + minute * 60_000_000
    offsets = (minute * TOPICS + np.repeat(np.arange(TOPICS), minutes)) * MESSAGES_A_ROW * RECORD_BYTES
    known = {
        "broker": _constant(BROKER, count),
        "topic": _topics(np.repeat(np.arange(TOPICS), minutes)),
        "queue_id": pa.array(np.zeros(count, np.int32)),
        "other_tags": pa.array(np.zeros(count, bool)),
        "kind": _constant("normal", count),
        "minute": _times(begins),
        "first_physical_offset": pa.array(offsets),
        "last_physical_offset": pa.array(offsets + (messages - 1) * RECORD_BYTES),
        "messages": pa.array(messages),
        "bytes": pa.array(total),
        "body_bytes": pa.array(total - 200 * messages),
        "busiest_second": _times(begins + chance.integers(0, 60, count) * 1_000_000),
        "busiest_second_messages": pa.array(1 + messages // 5),
        "max_size": pa.array(np.maximum.reduceat(sizes, starts[:-1]).astype(np.int64)),
        "size_sketch": sketch_groups(sizes, starts),
        "latency_messages": pa.array(messages),
        "latency_ms": pa.array(np.add.reduceat(latencies, starts[:-1]).astype(np.int64)),
        "max_latency_ms": pa.array(np.maximum.reduceat(latencies, starts[:-1]).astype(np.int64)),
        "latency_sketch": sketch_groups(latencies, starts),
        **dict.fromkeys(
            ("wait_messages", "wait_ms", "clock_skew_messages", "reconsumed", "rechecked", "committed"),
            pa.array(np.zeros(count, np.int64)),
        ),
        "run_id": _constant(RUN_ID, count),
    }
    columns = [known.get(field.name, pa.nulls(count)).cast(field.type) for field in MINUTES_SCHEMA]
    return write_minutes_file(pa.table(columns, schema=MINUTES_SCHEMA), lake, f"part-{first:06d}.zstd.parquet")


def _messages_file(lake: Lake, first: int, count: int, of: int) -> DataFile:
    """Write some of the day's messages, which are spread evenly over time, topics and queues."""
    chance = np.random.default_rng(first)
    numbers: Array = np.arange(first, first + count)
    begin, end = first * 86_400_000 // of, (first + count) * 86_400_000 // of
    stored = int(_LAST_DAY.timestamp() * 1000) + np.sort(chance.integers(begin, end, count))
    entries = pa.array(np.arange(count + 1, dtype=np.int32) * len(_PROPERTIES))
    names, values = (
        pa.DictionaryArray.from_arrays(
            pa.array(np.tile(np.arange(len(texts), dtype=np.int32), count)), pa.array(list(texts))
        ).cast(pa.string())
        for texts in (_PROPERTIES.keys(), _PROPERTIES.values())
    )
    known = {
        "broker": _constant(BROKER, count),
        "physical_offset": pa.array(numbers * RECORD_BYTES),
        "size": pa.array(chance.integers(300, 1700, count, np.int32)),
        "topic": _topics(numbers % TOPICS),
        "queue_id": pa.array((numbers // TOPICS % QUEUES).astype(np.int32)),
        "queue_offset": pa.array(numbers // (TOPICS * QUEUES)),
        "tags": _constant("new", count),
        "kind": pa.DictionaryArray.from_arrays(
            pa.array((numbers % _HALF_PART == 0).astype(np.int32)), pa.array(["normal", "half"])
        ),
        "born_timestamp": _times((stored - chance.integers(0, 20, count)) * 1000),
        "store_timestamp": _times(stored * 1000),
        "reconsume_times": pa.array(np.zeros(count, np.int32)),
        "prepared_transaction_offset": pa.array(np.zeros(count, np.int64)),
        "properties": pa.MapArray.from_arrays(entries, names, values),
        "format": _constant("rocketmq", count),
        "origin_topic": _topics(numbers % TOPICS),
    }
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in _MESSAGE_COLUMNS]
    rows = sort_rows(pa.table(columns, _MESSAGE_COLUMNS.names))
    return write_data_file(rows, lake, str(_LAST_DAY.date()), f"part-{first:012d}.zstd.parquet")


if __name__ == "__main__":
    sys.exit(main())
