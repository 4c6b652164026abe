"""How fast `archive` takes a store into a lake: `poe bench`, or `python -m tests.benchmarks.archive_throughput --help`.

It makes a store with broker_lite, archives it into a new lake several times in one warm session, and prints each run
and the median, with the machine and the sizes. Reading alone, on one core and without Spark, is measured beside it.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from broker_lite.store import MessageStore, StoreOptions
from connectors.commitlog.batches import read_split
from connectors.commitlog.plan import plan_splits, take_snapshot
from connectors.commitlog.refused import CORRUPT_RECORD
from connectors.commitlog.request import Request
from connectors.commitlog.stores import find_stores
from connectors.spark_session import get_session
from jobs import archive
from schemas.layouts.commitlog import NewMessage
from schemas.layouts.hosts import Host
from schemas.tables.messages import BODY, SOURCE

_START_MS = 1_767_571_200_000
_PRODUCER = Host.of("10.0.0.9", 50123)
_BATCH = 64


def shop_messages(count: int, body_bytes: int) -> Iterator[NewMessage]:
    """Messages as a producer's client makes them: key, tag, unique key, three properties of its own."""
    chance = random.Random(1)
    bodies = [chance.randbytes(body_bytes) for _ in range(64)]
    for number in range(count):
        yield NewMessage(
            f"topic-{number // _BATCH % 7}",
            bodies[number % 64],
            _START_MS + number,
            _PRODUCER,
            queue_id=number // _BATCH % 4,
            properties=(
                ("KEYS", f"order-{number}"),
                ("UNIQ_KEY", f"C0A8010A1F9018B4AAC2{number:012X}"),
                ("TAGS", f"tag-{number % 5}"),
                ("WAIT", "true"),
                ("city", "Berlin"),
                ("tier", "gold"),
            ),
        )


def make_store(folder: Path, gib: float, body_bytes: int) -> int:
    """A store of about so many GiB; how many messages it has."""
    options = StoreOptions(index_slots=1000, index_entries=4000, keep_index=False)
    count = int(gib * (1 << 30) / (body_bytes + 200))
    with MessageStore.open(folder, options) as store:
        batch: list[NewMessage] = []
        for message in shop_messages(count, body_bytes):
            batch.append(message)
            if len(batch) == _BATCH:
                store.put_batch(batch)
                batch = []
        if batch:
            store.put_batch(batch)
    return count


def measure_reading(store: Path) -> tuple[float, int, int]:
    """Seconds, log bytes and rows of one pass over the store in this process, all columns but the body."""
    (found,) = find_stores(str(store), "bench")
    snapshot = take_snapshot([found])
    columns = StructType([field for field in SOURCE if field.name not in (BODY.name, CORRUPT_RECORD)])
    request = Request(to_arrow_schema(columns, timezone="UTC"))
    started = time.perf_counter()
    splits = plan_splits(found, snapshot.ranges["bench"], 256 << 20)
    rows = sum(batch.num_rows for split in splits for batch in read_split(split, request))
    return time.perf_counter() - started, snapshot.size, rows


def report(what: str, seconds: list[float], size: int, rows: int) -> None:
    """One line: every run, and the median's rates."""
    middle = statistics.median(seconds)
    runs = " ".join(f"{value:.1f}" for value in seconds)
    print(f"{what}: {runs} s; median {size / middle / 1e9:.2f} GB/s, {rows / middle:,.0f} messages/s")


def main() -> int:
    """Make, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the throughput of archive on this machine.")
    parser.add_argument("--gib", type=float, default=1.0, help="size of the log (default: 1)")
    parser.add_argument("--body", type=int, default=1024, help="bytes of a body (default: 1024)")
    parser.add_argument("--runs", type=int, default=3, help="how often to archive (default: 3)")
    parser.add_argument("--dir", help="where to work (default: a temporary folder)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.dir) as scratch:
        store, lake = Path(scratch) / "store", Path(scratch) / "lake"
        count = make_store(store, arguments.gib, arguments.body)
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
        reading = [measure_reading(store) for _ in range(arguments.runs + 1)][1:]
        size, rows = reading[0][1], reading[0][2]
        assert rows == count, f"expected {count} messages, found {rows}"
        print(f"{rows:,} messages, {size / rows:.0f} bytes each, {size / (1 << 30):.2f} GiB")
        report("read all columns, one core", [seconds for seconds, _, _ in reading], size, rows)
        spark = get_session("bench")
        seconds = []
        for _ in range(arguments.runs + 1):
            shutil.rmtree(lake, ignore_errors=True)
            result = archive.run(spark, archive.Config(str(store), str(lake), "bench"))
            assert result.messages == count, f"expected {count} messages, found {result.messages}"
            seconds.append(result.seconds)
        report("archive to Delta, metadata, all cores", seconds[1:], size, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
