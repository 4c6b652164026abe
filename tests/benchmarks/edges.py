"""The cost of `edges`: for a million messages, and for the increment of a day as the lake grows.

    python -m tests.benchmarks.edges                                   eight days of 100,000 records
    python -m tests.benchmarks.edges --records 500000 --days 4

Of 20 messages, 17 are plain, one is delayed, one fails twice and is consumed at the third try, and one is a
transaction; clients trace all of them. Each day is archived, `message_keys` follows, and then `edges`, which is timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.message_keys.table_update import catch_up_keys
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from tests.benchmarks.machine import machine
from tests.support.lakes import GrowingLake, archive_store
from tests.support.message_families import (
    begun,
    committed,
    delayed,
    delivered,
    ended,
    failed,
    half,
    op,
    pub,
    record,
    trace,
)

DAY_SECONDS = 86_400
GROUP_RECORDS = 28
BODY = b"x" * 300


def main(argv: Sequence[str] | None = None) -> int:
    """Grow the lake day by day, and print a line for each day."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.edges", description=__doc__)
    parser.add_argument("--records", type=int, default=100_000, help="records of a day")
    parser.add_argument("--days", type=int, default=8)
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-edges-") as folder:
        growing = GrowingLake(Path(folder))
        for day in range(arguments.days):
            before = growing.count
            growing.write(_day(growing, day, arguments.records // GROUP_RECORDS))
            archive_store(growing.store, growing.lake, finish=False)
            catch_up_keys(growing.lake)
            _time_increment(growing, growing.count - before)
    return 0


def _time_increment(growing: GrowingLake, records: int) -> None:
    began, cpu, read = time.perf_counter(), time.process_time(), _read_bytes()
    update = follow_edges(growing.lake)
    seconds, cpu, read = time.perf_counter() - began, time.process_time() - cpu, _read_bytes() - read
    print(
        f"{growing.count:,} records in the lake; increment of {records:,}: {update.rows:,} rows in {seconds:.2f} s "
        f"({cpu:.2f} s of processor time, {cpu / records * 1e6:.1f} s a million), {read / (1 << 20):.1f} MiB read",
        flush=True,
    )


def _read_bytes() -> int:
    """Return the number of bytes that this process has read, from any file."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


def _day(growing: GrowingLake, day: int, groups: int) -> Iterator[NewMessage]:
    """Yield the records of a day."""
    for number in range(groups):
        yield from _group(growing, day, number, day * DAY_SECONDS + number * (DAY_SECONDS - 60) / groups)


def _group(growing: GrowingLake, day: int, number: int, start: float) -> Iterator[NewMessage]:
    """Yield the records of 20 messages, and of their traces."""
    names = [f"{day:08X}{number:016X}{each:08X}" for each in range(20)]
    places: list[int] = []
    for name in names[:17]:
        places.append(len(growing.log))
        yield record(name, seconds=start, body=BODY)
    waits, fails, prepared = names[17:]
    places += [len(growing.log)] * 3
    yield delayed(waits, start, body=BODY)
    places[18] = len(growing.log)
    yield record(fails, seconds=start, body=BODY)
    places[19] = len(growing.log)
    yield half(prepared, start)
    yield committed(prepared, places[19], start + 1)
    yield op([growing.queue_length(HALF_TOPIC) - 1], start + 3)
    yield delivered(waits, start + 10, body=BODY)
    for attempt in (1, 2):
        yield from failed(fails, attempt, places[18], start + 20 * attempt)
    sent = [pub(name, place, start) for name, place in zip(names, places, strict=True)]
    yield trace(*sent, seconds=start + 1)
    tries = [(name, 0) for name in names] + [(fails, 1), (fails, 2)]
    requests = {(name, attempt): f"{name} {attempt}" for name, attempt in tries}
    starts = [begun(name, request, attempt, start + 11 + 20 * attempt) for (name, attempt), request in requests.items()]
    ends = [
        ended(name, request, 4 if name == fails and attempt < 2 else 0, start + 12 + 20 * attempt)
        for (name, attempt), request in requests.items()
    ]
    yield trace(*starts, *ends, seconds=start + 55)


if __name__ == "__main__":
    sys.exit(main())
