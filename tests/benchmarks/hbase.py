"""The projection into HBase and its look-ups, timed on this machine.

    python -m tests.benchmarks.hbase                          200,000 messages: batch sizes and connections
    python -m tests.benchmarks.hbase --messages 5000000 --batch-rows 2000 --connections 2

Makes a table of messages of a shop (`tests.support.hbase_tables`), starts an HBase of its own, lets it follow for
each batch size and number of connections, then looks up keys, ids and ranges of a topic, and the same keys by the
lake's own engine. Everything runs on this machine: HBase, its Thrift server and Spark share its cores.
"""

from __future__ import annotations

import argparse
import datetime
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.lookups import find_messages, join_batches
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.table_update import follow_messages
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.spark.runner import SparkRunner
from commitlake.jobs.arguments.runner import get_spark_session
from commitlake.pipelines.message_keys.table_update import follow_keys
from commitlake.pipelines.query.key_conditions import business_keys_condition
from commitlake.schemas.selection import Selection
from tests.benchmarks.machine import machine
from tests.servers.hbase import HBase
from tests.servers.rocketmq import FAST_JVM
from tests.support.hbase_tables import START, append, chunks

LOOK_UPS = 1000
RANGE_LOOK_UPS = 200
DELTA_LOOK_UPS = 100
_CHUNK = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    """Run all measurements, and print a line for each figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hbase", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--batch-rows", default="200,1000,2000,5000", help="comma-separated")
    parser.add_argument("--connections", default="1,2,4", help="comma-separated")
    parser.add_argument("--heap-mb", type=int, default=2048, help="of HBase")
    arguments = parser.parse_args(argv)
    print(*(f"{name}: {value}" for name, value in machine().items()), sep="\n")
    with tempfile.TemporaryDirectory(prefix="commitlake-hbase-") as folder:
        lake = Lake(folder)
        for rows in chunks(arguments.messages, _CHUNK):
            append(lake.uri("messages"), rows)
        spark = get_spark_session("benchmark")
        with HBase(Path(folder) / "hbase", heap_mb=arguments.heap_mb, jvm=FAST_JVM) as server:
            options = HBaseOptions(host="127.0.0.1", port=server.thrift_port)
            for connections in _numbers(arguments.connections):
                for batch_rows in _numbers(arguments.batch_rows):
                    chosen = replace(options, batch_rows=batch_rows, connections=connections)
                    chosen = replace(chosen, table=f"messages_{connections}_{batch_rows}")
                    followed = follow_messages(SparkRunner(spark), lake, chosen, rows_per_task=1)
                    print(
                        f"{followed.rows:,} messages, {batch_rows} a call, {connections} connections: "
                        f"{followed.seconds:.1f} s, {followed.rows / followed.seconds:,.0f} messages/s",
                        flush=True,
                    )
            _time_look_ups(chosen, arguments.messages)
            _time_delta(lake, spark, arguments.messages)
        spark.stop()
    return 0


def _time_look_ups(options: HBaseOptions, messages: int) -> None:
    chance = random.Random(1)
    seconds = messages // 3 * 0.04
    with Client(options) as client:

        def by_key() -> Selection:
            return Selection(keys=[f"order-{chance.randrange(messages // 4)}"])

        def by_id() -> Selection:
            return Selection(ids=[f"0A00000100002A9F{1000 * chance.randrange(messages // 2):016X}"])

        def by_topic() -> Selection:
            start = START + datetime.timedelta(seconds=chance.uniform(0, seconds))
            return Selection(topics=["orders"], start=start, end=start + datetime.timedelta(minutes=20))

        ways: list[tuple[str, Callable[[], Selection], int]] = [
            ("business key", by_key, LOOK_UPS),
            ("offset message id", by_id, LOOK_UPS),
            ("topic and 20 minutes, first 100", by_topic, RANGE_LOOK_UPS),
        ]
        for name, wanted, times in ways:
            took, found = [], 0
            for _ in range(times):
                question = wanted()
                began = time.perf_counter()
                found += join_batches(find_messages(client, question, 100)).num_rows
                took.append(time.perf_counter() - began)
            print(
                f"HBase, {name}: {_quantiles(took)}, {found / times:.1f} messages each ({times} look-ups)", flush=True
            )


def _time_delta(lake: Lake, spark: SparkSession, messages: int) -> None:
    """Look keys up as `query --key` does: places from `message_keys`, then the messages from their files."""
    followed = follow_keys(lake, SparkRunner(spark))
    print(f"message_keys: {followed.rows:,} keys, {followed.seconds:.1f} s", flush=True)
    chance = random.Random(1)
    took, found = [], 0
    for _ in range(DELTA_LOOK_UPS):
        key = f"order-{chance.randrange(messages // 4)}"
        began = time.perf_counter()
        where = f"{business_keys_condition(lake, [key])} AND array_contains(keys, '{key}')"
        found += (
            run_sql(DeltaTable(lake.uri("messages")), "messages", f"SELECT * FROM messages WHERE {where}")
            .read_all()
            .num_rows
        )
        took.append(time.perf_counter() - began)
    print(
        f"Delta by deltalake, business key: {_quantiles(took)}, {found / DELTA_LOOK_UPS:.1f} messages each "
        f"({DELTA_LOOK_UPS} look-ups)",
        flush=True,
    )


def _quantiles(seconds: Sequence[float]) -> str:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms"


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
