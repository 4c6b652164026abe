"""A store is read while another process writes it: no read fails, and none loses a record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.formats.registry import COMMITLOGS
from commitlake.connectors.reading.batches import read_split
from commitlake.connectors.reading.errors import StoreError
from commitlake.connectors.reading.read_request import Request
from commitlake.connectors.reading.snapshots import StoreRange, plan_splits, take_snapshot
from commitlake.connectors.reading.stores import find_stores
from commitlake.jobs.cli.warm import compile_all_kernels
from commitlake.schemas.tables.messages import SOURCE

SCHEMA = arrow_schema(SOURCE.select_columns(["physical_offset", "size", "keys"]))
WRITER = """
import random, sys
from commitlake.broker_lite.stores.rocketmq import MessageStore, StoreOptions
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
chance, host = random.Random(1), Host.of("127.0.0.1", 1)
options = StoreOptions(segment_size_bytes=1 << 20, index_slots=100, index_entries=400, max_message_size_bytes=1 << 16)
with MessageStore.open(sys.argv[1], options) as store:
    for number in range(int(sys.argv[2])):
        store.put(NewMessage("orders", chance.randbytes(chance.randrange(900)), 0, host,
                             properties=[("KEYS", f"order-{number}")]))
"""


def read_range(store_path: Path, start: int) -> tuple[StoreRange, list[str]]:
    """Read the new records from an offset on; return the range, and the keys in it."""
    (store,) = find_stores(str(store_path), "b", formats=COMMITLOGS)
    found = take_snapshot([store], {"b": start}).ranges["b"]
    keys: list[str] = []
    for split in plan_splits(store, found, 256 << 10):
        for batch in read_split(split, Request(SCHEMA)):  # FAILFAST: damage is an error
            keys += [row["keys"][0] for row in batch.to_pylist()]
    return found, keys


@pytest.mark.parametrize("messages", [10_000, pytest.param(30_000, marks=pytest.mark.long("more of the same writes"))])
def test_reads_of_a_growing_store_take_every_record_once(tmp_path: Path, messages: int) -> None:
    compile_all_kernels()  # compile first, or the writer would end before the reader begins
    store = tmp_path / "store"
    command = [sys.executable, "-c", WRITER, str(store), str(messages)]
    keys: list[str] = []
    start, reads = 0, 0
    with subprocess.Popen(command, cwd=Path(__file__).parents[4]) as writer:
        try:
            while writer.poll() is None:
                try:
                    found, new = read_range(store, start)
                except StoreError:  # the writer has not begun
                    continue
                start, reads = found.end, reads + 1
                keys += new
        finally:
            writer.kill()
    assert writer.returncode == 0
    keys += read_range(store, start)[1]
    assert keys == [f"order-{number}" for number in range(messages)]
    assert reads > 1
