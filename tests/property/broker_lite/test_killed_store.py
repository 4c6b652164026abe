"""A process that is killed while it writes: every message it was told was stored is there afterwards.

The process writes in SYNC mode and prints a line for every message after `put` has returned; it is killed with SIGKILL
at a moment by chance, also while it is still opening, and so recovering, what the one before it left.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings

from commitlake.broker_lite.stores.rocketmq import FlushMode, MessageStore, StoreOptions
from commitlake.schemas.layouts.boltmq.dialect import DIALECTS
from tests.support.hypothesis_profiles import load
from tests.support.message_stores import SMALL, all_messages, log_records
from tests.support.waiting import let_pass

load()

KILLS = max(8, settings().max_examples // 40)
OPTIONS = replace(SMALL, segment_size_bytes=1 << 15, index_slots=100, index_entries=600, flush_mode=FlushMode.SYNC)
OPTIONS_OF = {dialect.name: replace(OPTIONS, dialect=dialect) for dialect in DIALECTS}
WRITER = """
import random, sys
from commitlake.broker_lite.stores.rocketmq import MessageStore
from tests.property.broker_lite.test_killed_store import OPTIONS_OF
from tests.support.message_stores import message

root, start = sys.argv[1], int(sys.argv[2])
chance = random.Random(start)
print("opening", flush=True)
with MessageStore.open(root, OPTIONS_OF[sys.argv[3]]) as store:
    number = start
    while True:
        count = chance.choice([1, 1, 3])
        batch = [message(number + i, queue_id=number % 3, body=bytes(chance.randrange(300))) for i in range(count)]
        results = store.put_batch(batch) if count > 1 else [store.put(batch[0])]
        for i, result in enumerate(results):
            print(number + i, result.physical_offset, result.queue_offset, flush=True)
        number += count
"""


def write_until_killed(root: Path, start: int, seconds: float, dialect: str) -> list[tuple[int, int, int]]:
    """Let a process write, kill it after a while, and return what it had said to be stored."""
    command = [sys.executable, "-c", WRITER, str(root), str(start), dialect]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opening\n"
        let_pass(seconds, "it is killed at any moment")
        process.kill()
        lines = process.stdout.read().split("\n")
    # The last line may be cut: its message is not claimed then.
    return [(int(number), int(offset), int(place)) for number, offset, place in map(str.split, lines[:-1])]


@pytest.mark.parametrize("dialect", OPTIONS_OF)
def test_every_acknowledged_message_is_there_after_every_kill(tmp_path: Path, dialect: str) -> None:
    chance = random.Random(4711)
    root = tmp_path / "store"
    acknowledged: list[tuple[int, int, int]] = []
    crashes = 0
    for kill in range(KILLS):
        # Every third is killed at once, in the middle of its recovery if it has one.
        seconds = chance.uniform(0, 0.02) if kill % 3 == 2 else chance.uniform(0.05, 0.4)
        acknowledged += write_until_killed(root, 1_000_000 * kill, seconds, dialect)
        if kill % 2:
            crashes += check(root, acknowledged, OPTIONS_OF[dialect])
    assert len(acknowledged) > KILLS
    assert crashes > KILLS // 4


def check(root: Path, acknowledged: list[tuple[int, int, int]], options: StoreOptions) -> bool:
    """Everything acknowledged is found in every way; queues have no hole, and nothing that the log has not.

    Returns:
        Whether the store had to be recovered from a crash.
    """
    with MessageStore.open(root, options) as store:
        for number, offset, place in acknowledged:
            got = store.get_at(offset)
            assert got is not None, f"message {number} at {offset}"
            assert (got.keys, got.queue_offset) == ([f"order-{number}"], place)
            if options.has_index:
                assert got in store.get_by_key("orders", f"order-{number}")
        queues = all_messages(store)
        for queue in queues.values():
            assert [got.queue_offset for got in queue] == list(range(len(queue)))
        in_queues = sorted(got.physical_offset for queue in queues.values() for got in queue)
        end = store.max_physical_offset
    in_log = [record.physical_offset for record in log_records(root) if record.physical_offset < end]
    assert in_queues == in_log
    return store.recovery.crashed
