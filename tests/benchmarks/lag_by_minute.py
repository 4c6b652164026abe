"""Time of `archive --backfill lag_minutes` for a day of many groups, and of one minute more.

    python -m tests.benchmarks.lag_by_minute                             50 groups of 100 queues
    python -m tests.benchmarks.lag_by_minute --groups 10 --hours 2

Each topic has 100 queues and five groups. A snapshot is taken every minute, and every group has moved then: no minute
can be left out. Afterwards a minute is added to the lake, and computed. A year of minutes is made as rows, and asked.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import APPLICATION_ID, ArchiveCommit, StoreProgress
from commitlake.connectors.lake.committer import commit_with_transaction
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.lag_minutes.minute_computation import SCHEMA
from commitlake.pipelines.lag_minutes.progress import APPLICATION_ID as APPLICATION
from commitlake.pipelines.lag_minutes.progress import FOLLOWED, MinutesProgress, StoreMinutes
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.offset_snapshots import CONSUMER_OFFSETS
from tests.benchmarks.machine import machine

QUEUES = 100
GROUPS_OF_TOPIC = 5
MESSAGE_BYTES = 1000
DAYS = 365
DAYS_OF_FILE = 30
CHANGES_A_DAY = 200
"""Minutes of a day in which the lag of a group changes, in the year."""
_START = datetime.datetime(2026, 1, 5, tzinfo=datetime.UTC)
_MINUTE = datetime.timedelta(minutes=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print seconds."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.lag_by_minute", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--groups", type=int, default=50, help="of consumers (default: %(default)s)")
    parser.add_argument("--hours", type=int, default=24, help="of the day (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=1, help="messages for each queue and minute (default: %(default)s)")
    parser.add_argument("--year", type=int, default=500, help="groups of a year; 0 for none (default: %(default)s)")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-lag-") as folder:
        writer = _Writer(Lake(folder), arguments.groups, arguments.rate)
        writer.write(60 * arguments.hours)
        _measure(writer.lake, f"{arguments.hours} hours, {arguments.groups} groups of {QUEUES} queues")
        for _ in range(3):
            writer.write(1)
            _measure(writer.lake, "one minute more")
        table = writer.lake.table("lag_minutes")
        size = sum(table.get_add_actions(flatten=True).column("size_bytes").to_pylist())
        print(f"lag_minutes: {table.count():,} rows, {size / (1 << 20):.1f} MiB")
    if arguments.year:
        with tempfile.TemporaryDirectory(prefix="commitlake-lag-") as folder:
            _measure_year(folder, arguments.year)
    return 0


def _measure(lake: Lake, what: str) -> None:
    started, busy = time.monotonic(), time.process_time()
    done = backfill_lag_minutes(lake)
    print(
        f"{what}: {done.minutes:,} minutes, {done.rows:,} rows in {time.monotonic() - started:.1f} s, "
        f"{time.process_time() - busy:.1f} s of processor time"
    )


def _measure_year(folder: str, groups: int) -> None:
    """Measure questions to a year of minutes, made as rows. Each group has one queue, and changes at random."""
    lake = Lake(folder)
    writer = _Writer(lake, 1, 1)
    writer.write(1)
    chance, files = np.random.default_rng(7), []
    for start in range(0, DAYS, DAYS_OF_FILE):
        days = min(DAYS_OF_FILE, DAYS - start)
        first = int(_START.timestamp()) // 60 + start * 24 * 60
        hours = (np.arange(first, first + days * 24 * 60, 60)[:, None] * groups + np.arange(groups)).reshape(-1)
        changes = chance.integers(first * groups, (first + days * 24 * 60) * groups, days * groups * CHANGES_A_DAY)
        places = np.unique(np.concatenate([hours, changes]))
        within_hour = places // groups % 60 != 0
        rows = _rows_of_year(np.concatenate([places[~within_hour], places[within_hour]]), groups, chance)
        files.append(write_plain_file(rows, lake, "lag_minutes", f"part-{start}.parquet", row_group_rows=1 << 17))
    until = int(_START.timestamp()) // 60 + DAYS * 24 * 60
    _write_marks(lake)
    versions = {table: -1 if (opened := lake.find(table)) is None else opened.version() for table in FOLLOWED}
    store = StoreMinutes(until, 1 << 40, 0)
    numbers = MinutesProgress(versions, {"broker-a": store}).transaction_numbers()
    step = (None, numbers.pop(APPLICATION))
    commit_with_transaction(
        lake,
        "lag_minutes",
        files,
        APPLICATION,
        step,
        other_transactions={name: (0, number) for name, number in numbers.items()},
    )
    size = sum(file.size for file in files)
    print(f"a year of {groups} groups: {sum(file.rows for file in files):,} rows, {size / (1 << 20):.0f} MiB")
    end = _START + DAYS * 24 * 60 * _MINUTE
    questions: dict[str, dict[str, Any]] = {
        "all groups by day": {"window": "24 hours", "since": _START, "until": end, "by": "group"},
        "one group by hour": {"window": "1 hour", "since": _START, "until": end, "group": "group-007"},
        "all groups at one time": {"window": "1 minute", "since": end - 601 * _MINUTE, "until": end - 600 * _MINUTE},
        "all groups by minute, one day": {
            "window": "1 minute",
            "since": end - 2 * 1440 * _MINUTE,
            "until": end - 1440 * _MINUTE,
            "by": "group",
        },
    }
    for what, question in questions.items():
        for _ in range(2):
            started, busy = time.monotonic(), time.process_time()
            rows = commitlake.open(lake.root).lag_history(**question).num_rows
            seconds = time.monotonic() - started
        print(f"{what}: {rows:,} rows in {seconds:.2f} s, {time.process_time() - busy:.2f} s of processor time")


def _rows_of_year(places: np.ndarray, groups: int, chance: np.random.Generator) -> pa.Table:
    """Return a row for each minute and group, which are given as one number."""
    count = len(places)
    minutes, numbers = np.divmod(places, groups)
    names = pa.array([f"group-{group:03d}" for group in range(groups)])
    topics = pa.array([f"topic-{group % 50:03d}" for group in range(groups)])
    waiting = chance.integers(0, 1000, count)
    known = {
        "broker": pa.array(["broker-a"] * count),
        "kind": pa.array(["group"] * count),
        "group": names.take(pa.array(numbers)),
        "topic": topics.take(pa.array(numbers)),
        "queue_id": pa.array(np.zeros(count, np.int32)),
        "broadcasts": pa.array([False] * count),
        "within_hour": pa.array(minutes % 60 != 0),
        "minute": pa.array(minutes * 60_000_000, SCHEMA.field("minute").type),
        **{name: pa.array(waiting) for name in ("messages_min", "messages_max")},
        **{name: pa.array(waiting * 1000) for name in ("bytes_min", "bytes_max", "offset_min", "offset_max", "end")},
        **{name: pa.array(waiting / 10) for name in ("time_lag_s_min", "time_lag_s_max")},
        "next_message_time": pa.array(minutes * 60_000_000 - waiting * 100_000, SCHEMA.field("minute").type),
        "consumed": pa.array(waiting),
        "verdict": pa.array(["ok"] * count),
        "filter": pa.array(["*"] * count),
    }
    return pa.Table.from_arrays([known.get(field.name, pa.nulls(count, field.type)) for field in SCHEMA], schema=SCHEMA)


def _write_marks(lake: Lake) -> None:
    """Add a whole snapshot for each minute of the year, of which none has moved an offset."""
    schema, count = arrow_schema(CONSUMER_OFFSETS), DAYS * 24 * 60
    start = int(_START.timestamp() * 1e6)
    known = {
        "broker": pa.array(["broker-a"] * count),
        "as_of": pa.array(start + 60_000_000 * np.arange(1, count + 1), pa.timestamp("us", "UTC")),
        "kind": pa.array(["group"] * count),
        "log_end": pa.array(np.zeros(count, np.int64)),
    }
    columns = [known.get(field.name, pa.nulls(count, field.type)) for field in schema]
    write_deltalake(lake.uri("consumer_offsets"), pa.Table.from_arrays(columns, schema=schema), mode="append")


class _Writer:
    """Adds minutes to a lake: messages, then a snapshot for each minute."""

    def __init__(self, lake: Lake, groups: int, rate: int) -> None:
        self.lake, self._groups, self._rate = lake, groups, rate
        self._topics = max(1, groups // GROUPS_OF_TOPIC)
        self._minutes = self._commits = 0
        self._offsets = np.zeros((groups, QUEUES), np.int64)

    def write(self, minutes: int) -> None:
        """Add minutes."""
        self._write_messages(minutes)
        self._write_snapshots(minutes)
        self._minutes += minutes

    def _write_messages(self, minutes: int) -> None:
        a_minute = self._topics * QUEUES * self._rate
        numbers = np.arange(self._minutes * a_minute, (self._minutes + minutes) * a_minute)
        queues = numbers % (self._topics * QUEUES)
        numbers = numbers[order := np.lexsort((numbers, queues))]
        queues = queues[order]
        count, schema = len(numbers), arrow_schema(MESSAGES)
        start = int(_START.timestamp() * 1e6)
        times = pa.array(start + numbers * (60_000_000 // a_minute)).cast(pa.timestamp("us", "UTC"))
        names = pa.array([f"topic-{number:03d}" for number in range(self._topics)])
        known = {
            "broker": pa.array(["broker-a"] * count),
            "physical_offset": pa.array(numbers * MESSAGE_BYTES),
            "topic": names.take(pa.array(queues // QUEUES)),
            "queue_id": pa.array((queues % QUEUES).astype(np.int32)),
            "queue_offset": pa.array(numbers // (self._topics * QUEUES)),
            "size": pa.array(np.full(count, MESSAGE_BYTES, np.int32)),
            "store_timestamp": times,
            "store_date": times.cast(pa.date32()),
        }
        columns = [known.get(field.name, pa.nulls(count, field.type)) for field in schema]
        self._commits += 1
        end = (self._minutes + minutes) * a_minute * MESSAGE_BYTES
        commit = ArchiveCommit(self._commits, f"run-{self._commits}", {"broker-a": StoreProgress(end)})
        write_deltalake(
            self.lake.uri("messages"),
            pa.Table.from_arrays(columns, schema=schema),
            mode="append",
            partition_by=["store_date"],
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": commit.to_metadata()},
                app_transactions=[Transaction(APPLICATION_ID, self._commits)],
            ),
        )

    def _write_snapshots(self, minutes: int) -> None:
        chance = np.random.default_rng(self._minutes)
        parts = []
        for minute in range(self._minutes + 1, self._minutes + minutes + 1):
            end = minute * self._rate
            self._offsets = np.maximum(self._offsets, end - chance.integers(0, 3, self._offsets.shape))
            parts.append(self._snapshot(minute, self._offsets))
        write_deltalake(self.lake.uri("consumer_offsets"), pa.concat_tables(parts), mode="append")

    def _snapshot(self, minute: int, offsets: np.ndarray) -> pa.Table:
        """Return the rows of a snapshot: one of its own, and one for each group and queue."""
        schema, rows = arrow_schema(CONSUMER_OFFSETS), offsets.size
        as_of = _START + minute * _MINUTE - datetime.timedelta(seconds=1)
        log_end = minute * self._topics * QUEUES * self._rate * MESSAGE_BYTES
        mark = {"broker": "broker-a", "as_of": as_of, "kind": "group", "source": "file", "log_start": 0}
        mark["log_end"] = log_end
        groups = np.repeat(np.arange(self._groups), QUEUES)
        known = {
            "broker": pa.array(["broker-a"] * rows),
            "as_of": pa.array([as_of] * rows, pa.timestamp("us", "UTC")),
            "kind": pa.array(["group"] * rows),
            "source": pa.array(["file"] * rows),
            "group": pa.array([f"group-{group:03d}" for group in groups]),
            "topic": pa.array([f"topic-{group // GROUPS_OF_TOPIC:03d}" for group in groups]),
            "queue_id": pa.array(np.tile(np.arange(QUEUES, dtype=np.int32), self._groups)),
            "offset": pa.array(offsets.reshape(-1)),
        }
        columns = [known.get(field.name, pa.nulls(rows, field.type)) for field in schema]
        return pa.concat_tables([pa.Table.from_pylist([mark], schema), pa.Table.from_arrays(columns, schema=schema)])


if __name__ == "__main__":
    sys.exit(main())
