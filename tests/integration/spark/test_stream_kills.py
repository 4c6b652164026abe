"""A stream that is killed at any moment, and started again, leaves each record in its table once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.support.comparing import COLUMNS, Row, plain_rows
from tests.support.kills import kill_count
from tests.support.process_trees import kill_tree
from tests.support.waiting import let_pass, wait_until

ROOT = Path(__file__).parents[3]
KILLS = kill_count(1, share=10)
MESSAGES = 6_000
STREAM = """
import sys
from commitlake.jobs.arguments.runner import get_spark_session
store, table, checkpoint, trigger, limit = sys.argv[1:]
frame = get_spark_session("stream").readStream.format("commitlog").option("maxBytesPerTrigger", limit).load(store)
writer = frame.writeStream.format("delta").option("checkpointLocation", checkpoint)
how = {"availableNow": True} if trigger == "availableNow" else {"processingTime": trigger}
query = writer.trigger(**how).start(table)
print("started", flush=True)
query.awaitTermination()
"""
WRITER = """
import random, sys, time
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
chance, host = random.Random(int(sys.argv[2])), Host.of("127.0.0.1", 1)
options = StoreOptions(segment_size_bytes=1 << 20, index_slots=100, index_entries=400, max_message_size_bytes=1 << 16)
with MessageStore.open(sys.argv[1], options) as store:
    for number in range(int(sys.argv[3])):
        store.put(NewMessage("orders", chance.randbytes(chance.randrange(900)), 0, host,
                             properties=[("KEYS", f"order-{number}")]))
        if number % 100 == 0:
            time.sleep(0.1)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process in a session of its own."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )


def kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        kill_tree(process.pid)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def table_rows(table: Path) -> list[Row]:
    """Return a table's rows as plain values, in order of their offsets, read without Spark: times as ms."""
    data = DeltaTable(str(table)).to_pyarrow_table(columns=COLUMNS).sort_by("physical_offset")
    for name in ("born_timestamp", "store_timestamp"):
        milliseconds = data.column(name).cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
        data = data.set_column(data.column_names.index(name), name, milliseconds)
    return [{**row, "properties": dict(row["properties"])} for row in data.to_pylist()]


@pytest.mark.long("a stream goes on from its checkpoint and repeats a failed batch each time")
@pytest.mark.kills
@pytest.mark.parametrize("seed", [1])
@pytest.mark.timeout(1800)  # a JVM for each kill, however busy the machine
def test_a_killed_stream_loses_and_repeats_no_record(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    store, table, checkpoint = tmp_path / "broker-a" / "store", tmp_path / "table", tmp_path / "checkpoint"
    writer = start(WRITER, store, seed, MESSAGES)
    try:
        wait_until(lambda: any(store.glob("commitlog/*")))
        for _ in range(KILLS):
            stream = start(STREAM, store, table, checkpoint, "0 seconds", 200_000)
            try:
                assert stream.stdout is not None
                assert stream.stdout.readline() == "started\n"
                let_pass(chance.uniform(0.5, 8), "it is killed at any moment, of its first batch too")
            finally:
                kill(stream)
        assert writer.wait(120) == 0
    finally:
        kill(writer)
    last = start(STREAM, store, table, checkpoint, "availableNow", 4 << 20)
    try:
        assert last.wait(300) == 0
    finally:
        kill(last)
    rows = table_rows(table)
    assert len(rows) == MESSAGES
    assert rows == plain_rows(store)
