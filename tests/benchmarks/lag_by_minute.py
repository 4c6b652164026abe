"""Time of `archive --backfill lag_minutes` for a day of many groups, and of one minute more.

    python -m tests.benchmarks.lag_by_minute                             50 groups of 100 queues
    python -m tests.benchmarks.lag_by_minute --groups 10 --hours 2

Each topic has 100 queues and five groups. A snapshot is taken every minute, and every group has moved then: no minute
can be left out. Afterwards a minute is added to the lake, and computed.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_log import APPLICATION_ID, ArchiveCommit, StoreProgress
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.local_runner import ProcessRunner
from commitlake.pipelines.lag_minutes.follow import backfill_lag_minutes
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.snapshots import CONSUMER_OFFSETS
from tests.benchmarks.machine import machine

QUEUES = 100
GROUPS_OF_TOPIC = 5
MESSAGE_BYTES = 1000
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
        _measure_questions(writer.lake)
    return 0


def _measure(lake: Lake, what: str) -> None:
    started, busy = time.monotonic(), time.process_time()
    done = backfill_lag_minutes(lake, ProcessRunner())
    print(
        f"{what}: {done.minutes:,} minutes, {done.rows:,} rows in {time.monotonic() - started:.1f} s "
        f"({time.process_time() - busy:.1f} s of processor time in this process)"
    )


def _measure_questions(lake: Lake) -> None:
    opened = commitlake.open(lake.root)
    for what, question in (
        (
            "all groups at one time",
            {"window": "1 minute", "since": _START + 30 * _MINUTE, "until": _START + 31 * _MINUTE},
        ),
        ("one group by hour", {"window": "1 hour", "since": _START, "group": "group-007"}),
    ):
        started = time.monotonic()
        rows = opened.lag_history(**question).num_rows  # type: ignore[arg-type]
        print(f"{what}: {rows:,} rows in {time.monotonic() - started:.2f} s")


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
