"""Time and memory of journeys: millions of keys, made as rows of `messages` and `edges`.

    python -m tests.benchmarks.journeys                        the command, for a million keys of six messages
    python -m tests.benchmarks.journeys --keys 10000000        for ten million; 1.2 GB for the lake, 3.5 GB for files
    python -m tests.benchmarks.journeys --table                the journeys as an Arrow table
    python -m tests.benchmarks.journeys --spark                by Spark on this machine

Of 20 keys, 17 go through all six topics. One stops after its payment, of one the payment fails twice, and of one the
shipment is a transaction that is committed. All paths, hops and keys that stopped are compared with what was made.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

import commitlake
from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from commitlake.schemas.tables.edges import EDGES
from commitlake.schemas.tables.messages import MESSAGES
from tests.benchmarks.commands import run_commitlake
from tests.benchmarks.machine import machine

TOPICS = ("orders", "stock", "payments", "invoices", "shipments", "mails")
BATCH_KEYS = 50_000
DAY_US = 86_400_000_000
START_US = 1_767_225_600_000_000
"""1 January 2026."""
_STEP_US = 40_000_000


def main(argv: Sequence[str] | None = None) -> int:
    """Make a lake, and compute its journeys and hops."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.journeys", description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--table", action="store_true", help="compute a table of all journeys, without the command")
    parser.add_argument("--spark", action="store_true", help="compute them with Spark")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-journeys-") as folder:
        records = make_lake(folder, arguments.keys)
        print(f"{arguments.keys:,} keys, {records:,} records", flush=True)
        measure = _measure_spark if arguments.spark else _measure_table if arguments.table else _measure_command
        measure(folder, arguments.keys)
    return 0


def make_lake(folder: str, keys: int) -> int:
    """Write `messages` and `edges` of a number of keys, and return the number of records."""
    records, offset = 0, 0
    for first in range(0, keys, BATCH_KEYS):
        numbers = np.arange(first, min(keys, first + BATCH_KEYS))
        messages, edges = _rows(numbers, keys, offset)
        write_deltalake(f"{folder}/messages", messages, mode="append", partition_by=["store_date"])
        write_deltalake(f"{folder}/edges", edges, mode="append")
        records += messages.num_rows
        offset += messages.num_rows * 100
    return records


def _rows(numbers: Array, keys: int, offset: int) -> tuple[pa.Table, pa.Table]:
    """Return the records of some keys, in the order of a log, and the steps between them."""
    sent: list[tuple[Array, int, str, str, str]] = []  # numbers, seconds, topic, kind, topic that it was sent to
    shape = numbers % 20
    for place, topic in enumerate(TOPICS):
        chosen = numbers[(shape != 17) | (place < 3)]
        if topic == "shipments":
            halves = chosen[chosen % 20 == 19]
            sent.append((halves, 40 * place - 5, HALF_TOPIC, "half", topic))
        sent.append((chosen, 40 * place, topic, "normal", topic))
        if topic == "payments":
            fails = chosen[chosen % 20 == 18]
            sent += [(fails, 40 * place + 10 * attempt, "%RETRY%shop", "retry", topic) for attempt in (1, 2)]
    key = np.concatenate([part[0] for part in sent])
    lengths = [len(part[0]) for part in sent]
    seconds = np.repeat([part[1] for part in sent], lengths)
    times = START_US + key * DAY_US // keys // 1000 * 1000 + seconds * 1_000_000
    order = np.argsort(times, kind="stable")
    parts = np.repeat(np.arange(len(sent)), lengths)[order]
    key, times = key[order], times[order]
    offsets = offset + 100 * np.arange(len(key))

    def texts(field: int) -> pa.Array:
        names = pa.array([part[field] for part in sent], pa.string())
        return names.take(pa.array(parts))

    names = np.char.add("order-", key.astype(str))
    origin = texts(4)
    stored = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
    known = {
        "broker": pa.repeat("broker-a", len(key)),
        "physical_offset": pa.array(offsets),
        "topic": texts(2),
        "kind": texts(3),
        "origin_topic": origin,
        "unique_key": pa.array(np.char.add(names, np.array(origin.to_numpy(zero_copy_only=False), str))),
        "keys": pa.ListArray.from_arrays(pa.array(np.arange(len(key) + 1), pa.int32()), pa.array(names)),
        "store_timestamp": stored,
        "store_date": stored.cast(pa.date32()),
    }
    messages = _table(known, len(key), arrow_schema(MESSAGES))
    return messages, _steps(sent, parts, key, offsets, times)


def _steps(
    sent: Sequence[tuple[Array, int, str, str, str]], parts: Array, key: Array, offsets: Array, times: Array
) -> pa.Table:
    """Return the steps from half messages to their copies, and from payments to their retries."""
    pairs: list[tuple[str, int, int]] = []
    for number, (_, _, _, kind, topic) in enumerate(sent):
        if kind == "half":
            pairs.append(("committed", number, number + 1))
        if kind == "retry":
            pairs.append(("retried", number - 1, number))
        del topic
    columns: dict[str, list[pa.Array]] = {}
    for kind, first, then in pairs:
        later = np.flatnonzero(parts == then)
        earlier = np.flatnonzero(parts == first)
        wanted = np.isin(key[later], key[earlier])
        later = later[wanted]
        rank = np.argsort(key[earlier], kind="stable")
        earlier = earlier[rank][np.searchsorted(key[earlier][rank], key[later])]
        count = len(later)
        made: dict[str, pa.Array] = {
            "side": pa.repeat("both", count),
            "kind": pa.repeat(kind, count),
        }
        for end, rows in (("from", earlier), ("to", later)):
            made[f"{end}_broker"] = pa.repeat("broker-a", count)
            made[f"{end}_physical_offset"] = pa.array(offsets[rows])
            made[f"{end}_timestamp"] = pa.array(times[rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
        if kind == "retried":
            keep = key[later] % 20 == 18
            made = {name: column.filter(pa.array(keep)) for name, column in made.items()}
        for name, column in made.items():
            columns.setdefault(name, []).append(column)
    joined = {name: pa.concat_arrays(found) for name, found in columns.items()}
    return _table(joined, len(joined["kind"]), arrow_schema(EDGES))


def _table(known: dict[str, pa.Array], count: int, schema: pa.Schema) -> pa.Table:
    columns = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(count, field.type) for field in schema
    ]
    return pa.table(columns, schema=schema)


def _measure_command(folder: str, keys: int) -> None:
    _check_command(folder, keys, _run_command)


def _check_command(folder: str, keys: int, run: Callable[[str, Sequence[str]], list[dict[str, Any]]]) -> None:
    """Run the command for paths, hops and keys, and compare its rows with what was made."""
    window = ["--lake", folder, "--from", _WINDOW["since"], "--to", _WINDOW["until"], "--format", "json", "--quiet"]
    whole, stopped = keys - len(range(17, keys, 20)), len(range(17, keys, 20))
    paths = run("paths", [*window, "--show", "paths"])
    print(sorted((len(row["path"]), row["keys"]) for row in paths), f"expected {[(3, stopped), (6, whole)]}")
    hops = run("hops", [*window, "--show", "hops"])
    first, then = sum(row["hops"] for row in hops[:2]), sum(row["hops"] for row in hops[2:])
    print(f"hops that all keys take, and those that some do not: {first:,} and {then:,}, at most {2 * keys:,} "
          f"and {3 * whole:,}: those of the next day are left out")  # fmt: skip
    found = run("keys that stopped", [*window, "--through", "payments", "--missing", "shipments", "--limit", "0"])
    are_right = [row["key"] for row in found] == sorted(f"order-{number}" for number in range(17, keys, 20))
    print(f"{len(found):,} keys were paid and not shipped, {'all of them' if are_right else 'WRONG'}")


def _run_command(what: str, words: Sequence[str]) -> list[dict[str, Any]]:
    with tempfile.TemporaryFile() as output:
        run = run_commitlake(["journeys", *words], output)
        busy = f"{run.processor_seconds:.1f} s of processor time"
        print(f"{what}: {run.seconds:.1f} s, {busy}, memory at most {run.mib:,.0f} MiB", flush=True)
        output.seek(0)
        rows: list[dict[str, Any]] = json.load(output)["rows"]
        return rows


def _measure_table(folder: str, keys: int) -> None:
    lake = commitlake.open(folder)
    began = time.perf_counter(), time.process_time()
    found = lake.journeys(**_WINDOW)
    _print("journeys", began)
    _check(found.column("path").to_pylist(), found.column("retries").to_pylist(), keys)
    del found
    began = time.perf_counter(), time.process_time()
    flow = lake.topic_flow(**_WINDOW)
    _print(f"hops ({flow.num_rows} rows)", began)


def _measure_spark(folder: str, keys: int) -> None:
    from commitlake.jobs.arguments.runner import get_spark_session

    spark = get_spark_session("journeys")
    _check_command(folder, keys, _run_on_spark)
    lake = commitlake.open(folder, spark)
    for name, frame in (("table of journeys", lake.journeys(**_WINDOW)), ("of hops", lake.topic_flow(**_WINDOW))):
        began = time.perf_counter(), _processor_seconds()
        frame.write.format("noop").mode("overwrite").save()
        _print_spark(name, began)
    spark.stop()


def _run_on_spark(what: str, words: Sequence[str]) -> list[dict[str, Any]]:
    from commitlake.jobs.journeys.command import main as run_journeys

    began = time.perf_counter(), _processor_seconds()
    output = io.StringIO()
    with redirect_stdout(output):
        assert run_journeys([*words, "--spark"]) == 0
    _print_spark(what, began)
    rows: list[dict[str, Any]] = json.loads(output.getvalue())["rows"]
    return rows


def _print_spark(what: str, began: tuple[float, float]) -> None:
    """Print time and memory of this process, the JVM and its Python workers."""
    seconds, busy = time.perf_counter() - began[0], _processor_seconds() - began[1]
    peaks: dict[str, int] = {}
    for process in _processes():
        line = next((line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM")), "_ 0")
        name = "this process" if process.name == str(os.getpid()) else (process / "comm").read_text().strip()
        peaks[name] = max(peaks.get(name, 0), int(line.split()[1]) >> 10)
    memory = ", ".join(f"{mib:,} MiB of {name}" for name, mib in peaks.items())
    print(f"{what}: {seconds:.1f} s, {busy:.1f} s of processor time, memory at most {memory}", flush=True)


def _processes() -> list[Path]:
    """Return the folders in `/proc` of this process and of all that it has started."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[process] = (process / "stat").read_text().rpartition(")")[2].split()[1]
    found = [Path(f"/proc/{os.getpid()}")]
    for each in found:
        found += [process for process, parent in parents.items() if parent == each.name]
    return found


def _processor_seconds() -> float:
    """Return the processor time of these processes, also of those that have ended."""
    ticks = 0
    for process in _processes():
        with suppress(OSError):
            ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


_WINDOW: dict[str, Any] = {"since": "2026-01-01", "until": "2026-01-02"}


def _print(what: str, began: tuple[float, float]) -> None:
    seconds, cpu = time.perf_counter() - began[0], time.process_time() - began[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{what}: {seconds:.1f} s, {cpu:.1f} s of processor time, memory at most {peak:,} MiB", flush=True)


def _check(paths: Iterator[list[str]] | list[list[str]], retries: list[int], keys: int) -> None:
    """Compare the number of each path, and of retries, with what was made."""
    short = sum(path == list(TOPICS[:3]) for path in paths)
    whole = sum(path == list(TOPICS) for path in paths)
    expected = len(range(17, keys, 20)), keys - len(range(17, keys, 20)), 2 * len(range(18, keys, 20))
    found = short, whole, sum(retries)
    print(f"short and whole paths, and retries: {found}, expected {expected}")


if __name__ == "__main__":
    sys.exit(main())
