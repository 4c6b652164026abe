"""Time of `lag` over a week of snapshots of many groups, from the command to its end.

    python -m tests.benchmarks.lags                                      2,000 groups of 64 queues
    python -m tests.benchmarks.lags --groups 200 --messages 1000000

A snapshot is taken every ten minutes, and in each a fiftieth of the groups has moved. Every group consumes one topic of
64 queues. The first run warms the page cache and is left out of the medians.
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
from deltalake import write_deltalake

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.offset_snapshots import CONSUMER_OFFSETS
from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.machine import machine

QUEUES = 64
DAYS = 7
SNAPSHOTS_A_DAY = 144
_KEPT_DAYS = 3
"""Days whose messages are still in the broker's log."""
MOVING_PART = 50
"""One in this many groups moves between two snapshots."""
_DAY = datetime.timedelta(days=1)
_MONDAY = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
_QUESTIONS = {
    "now": (),
    "3 days before": ("--at", f"{_MONDAY + 4 * _DAY:%Y-%m-%dT%H:%M:30}"),
    "one group": ("--group", "group-0007"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.lags", description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=2000, help="of consumers (default: %(default)s)")
    parser.add_argument("--messages", type=int, default=2_000_000, help="of the lake (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=4, help="of each question (default: %(default)s)")
    parser.add_argument("--keep", metavar="DIR", help="make the lake here, and keep it")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-lags-") as folder:
        lake = Lake(arguments.keep or folder)
        if not Path(lake.root, "messages").exists():
            make_lake(lake, arguments.groups, arguments.messages)
        for name, choice in _QUESTIONS.items():
            words = ["lag", "--lake", lake.root, "--quiet", "--all", *choice, "--output", "csv"]
            runs = [run_commitlake(words) for _ in range(arguments.runs)]
            seconds, busy, mib = (statistics.median(figures) for figures in zip(*runs[1:], strict=True))
            print(f"{name}: {seconds:.2f} s, {busy:.2f} s of processor time, {mib:.0f} MiB")
    return 0


def make_lake(lake: Lake, groups: int, messages: int) -> None:
    """Write a lake with numbers of groups and messages."""
    topics = max(1, groups // 40)
    _write_messages(lake, topics, messages)
    _write_snapshots(lake, groups, topics, messages // (topics * QUEUES))


def _write_messages(lake: Lake, topics: int, messages: int) -> None:
    schema = arrow_schema(MESSAGES)
    a_day = messages // DAYS
    names = pa.array([f"topic-{number:03d}" for number in range(topics)])
    for day in range(DAYS):
        numbers = np.arange(day * a_day, (day + 1) * a_day)
        queues = numbers % (topics * QUEUES)
        order = np.lexsort((numbers, queues))
        numbers, queues = numbers[order], queues[order]
        start = int((_MONDAY + day * _DAY).timestamp() * 1e6)
        times = pa.array(start + (numbers - day * a_day) * (86_400_000_000 // a_day)).cast(pa.timestamp("us", "UTC"))
        known = {
            "broker": pa.array(["broker-a"] * a_day),
            "physical_offset": pa.array(numbers * 1000),
            "topic": names.take(pa.array(queues // QUEUES)),
            "queue_id": pa.array((queues % QUEUES).astype(np.int32)),
            "queue_offset": pa.array(numbers // (topics * QUEUES)),
            "size": pa.array(np.full(a_day, 1000, np.int32)),
            "store_timestamp": times,
            "store_date": times.cast(pa.date32()),
        }
        columns = [known.get(field.name, pa.nulls(a_day, field.type)) for field in schema]
        write_deltalake(
            lake.uri("messages"),
            pa.Table.from_arrays(columns, schema=schema),
            mode="append",
            partition_by=["store_date"],
        )


def _write_snapshots(lake: Lake, groups: int, topics: int, depth: int) -> None:
    chance = np.random.default_rng(19)
    offsets = np.zeros((groups, QUEUES), np.int64)
    count = DAYS * SNAPSHOTS_A_DAY
    parts: list[pa.Table] = []
    for number in range(count):
        as_of = _MONDAY + (number + 1) * _DAY / SNAPSHOTS_A_DAY
        moved = np.arange(groups) if not number else np.arange(number % MOVING_PART, groups, MOVING_PART)
        end = depth * (number + 1) // count
        offsets[moved] = np.maximum(offsets[moved], end - chance.integers(0, 4, (len(moved), QUEUES)))
        log_start = max(0, end - depth * _KEPT_DAYS // DAYS) * topics * QUEUES * 1000
        parts.append(_snapshot(as_of, moved, offsets[moved], topics, log_start))
        if number % SNAPSHOTS_A_DAY == SNAPSHOTS_A_DAY - 1:
            write_deltalake(lake.uri("consumer_offsets"), pa.concat_tables(parts), mode="append")
            parts = []


def _snapshot(
    as_of: datetime.datetime, groups: np.ndarray, offsets: np.ndarray, topics: int, log_start: int
) -> pa.Table:
    """Return the rows of a snapshot: one of its own, and one for each queue of a group that has moved."""
    schema = arrow_schema(CONSUMER_OFFSETS)
    rows = offsets.size
    mark = {"broker": "broker-a", "as_of": as_of, "kind": "group", "source": "file", "log_end": 0}
    mark["log_start"] = log_start
    each = np.repeat(groups, QUEUES)
    known = {
        "broker": pa.array(["broker-a"] * rows),
        "as_of": pa.array([as_of] * rows, pa.timestamp("us", "UTC")),
        "kind": pa.array(["group"] * rows),
        "source": pa.array(["file"] * rows),
        "group": pa.array([f"group-{group:04d}" for group in each]),
        "topic": pa.array([f"topic-{group % topics:03d}" for group in each]),
        "queue_id": pa.array(np.tile(np.arange(QUEUES, dtype=np.int32), len(groups))),
        "offset": pa.array(offsets.reshape(-1)),
    }
    columns = [known.get(field.name, pa.nulls(rows, field.type)) for field in schema]
    return pa.concat_tables([pa.Table.from_pylist([mark], schema), pa.Table.from_arrays(columns, schema=schema)])


if __name__ == "__main__":
    sys.exit(main())
