"""A process that is killed while it writes in JMQ's layout: every message it was told was stored is there, once.

The process writes in SYNC mode and prints a line for every message after `put` has returned; it is killed with SIGKILL
at a moment by chance, also while it is still opening, and so recovering, what the one before it left.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import settings

from commitlake.broker_lite.stores.jmq import JournalStore
from commitlake.broker_lite.stores.rocketmq import FlushMode
from tests.support.hypothesis_profiles import load
from tests.support.journal_stores import SMALL, all_messages, journal_records
from tests.support.waiting import let_pass

load()

KILLS = max(8, settings().max_examples // 40)
OPTIONS = replace(SMALL, journal_file_size_bytes=1 << 15, queue_count=3, flush_mode=FlushMode.SYNC)
WRITER = """
import random, sys
from commitlake.broker_lite.stores.jmq import JournalStore
from tests.property.broker_lite.test_journal_killed import OPTIONS
from tests.support.journal_stores import message

root, start = sys.argv[1], int(sys.argv[2])
chance = random.Random(start)
print("opening", flush=True)
with JournalStore.open(root, OPTIONS, chance=chance) as store:
    number = start
    while True:
        count = chance.choice([1, 1, 3])
        size = chance.randrange(300)
        batch = [message(number + i, body=chance.randbytes(size), is_ordered=count == 1) for i in range(count)]
        results = store.put_batch(batch) if count > 1 else [store.put(batch[0])]
        for i, result in enumerate(results):
            print(number + i, result.journal_offset, result.queue_id, result.queue_offset, flush=True)
        number += count
"""
Told = tuple[int, int, int, int]


def write_until_killed(root: Path, start: int, seconds: float) -> list[Told]:
    """Let a process write, kill it after a while, and return what it had said to be stored."""
    command = [sys.executable, "-c", WRITER, str(root), str(start)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "opening\n"
        let_pass(seconds, "it is killed at any moment")
        process.kill()
        lines = process.stdout.read().split("\n")
    # The last line may be cut: its message is not claimed then.
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in map(str.split, lines[:-1])]


def test_every_acknowledged_message_is_there_once_after_every_kill(tmp_path: Path) -> None:
    chance = random.Random(4711)
    root = tmp_path / "store"
    acknowledged: list[Told] = []
    crashes = 0
    for kill in range(KILLS):
        # Every third is killed at once, in the middle of its recovery if it has one.
        seconds = chance.uniform(0, 0.02) if kill % 3 == 2 else chance.uniform(0.05, 0.4)
        acknowledged += write_until_killed(root, 1_000_000 * kill, seconds)
        if kill % 2:
            crashes += check(root, acknowledged)
    assert len(acknowledged) > KILLS
    assert crashes > KILLS // 4


def check(root: Path, acknowledged: list[Told]) -> bool:
    """Everything acknowledged is found in every way, once; queues have no hole, and nothing that the journal has not.

    Returns:
        Whether the store had to be recovered from a crash.
    """
    with JournalStore.open(root, OPTIONS) as store:
        for number, offset, queue_id, place in acknowledged:
            got = store.get_at(offset)
            assert got is not None, f"message {number} at {offset}"
            assert (got.business_id, got.queue_id, got.queue_offset) == (f"order-{number}", queue_id, place)
            assert store.get("orders", queue_id, place, 1).messages == [got]
        queues = all_messages(store)
        for queue in queues.values():
            assert [got.queue_offset for got in queue] == list(range(len(queue)))
        everything = [got for queue in queues.values() for got in queue]
        end = store.max_journal_offset
    assert len({got.business_id for got in everything}) == len(everything)
    in_journal = [record.journal_offset for record in journal_records(root) if record.journal_offset < end]
    assert sorted(got.journal_offset for got in everything) == in_journal
    return store.recovery.crashed
