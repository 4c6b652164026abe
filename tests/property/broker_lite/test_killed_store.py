"""A process that is killed while it writes: every acknowledged message is stored afterwards, once.

The process writes in SYNC mode and prints a line for every message after `put` has returned; it is killed with SIGKILL
at a random moment, sometimes while it still recovers the store that the process before it left.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from commitlake.broker_lite.stores.rocketmq import FlushMode
from commitlake.schemas.layouts.rocketmq.indexfile import Header, parse_header
from tests.support.hypothesis_profiles import load
from tests.support.kills import numbers_until_killed
from tests.support.small_stores import all_messages
from tests.support.store_formats import BOLTMQ_DIALECT, JMQ, ROCKETMQ, StoreFormat

load()

KILLS = max(4, settings().max_examples // 25)
KINDS = {known.name: known for known in (ROCKETMQ, BOLTMQ_DIALECT, JMQ)}
BOLTMQ = pytest.mark.long("the same files as RocketMQ's")
QUEUES = 3
_ROCKETMQ_OPTIONS = {"segment_size_bytes": 1 << 15, "index_slots": 100, "index_entries": 600}
OPTIONS: dict[str, dict[str, Any]] = {
    "rocketmq": _ROCKETMQ_OPTIONS,
    "boltmq": _ROCKETMQ_OPTIONS,
    "jmq": {"journal_file_size_bytes": 1 << 15, "queue_count": QUEUES},
}
WRITER = """
import sys
from pathlib import Path
from tests.property.broker_lite.test_killed_store import KINDS, write

write(KINDS[sys.argv[1]], Path(sys.argv[2]), int(sys.argv[3]))
"""


def open_store(known: StoreFormat, root: Path) -> Any:
    return known.open(root, flush_mode=FlushMode.SYNC, **OPTIONS[known.name])


def write(known: StoreFormat, root: Path, start: int) -> None:
    """Put messages, alone and together, and print number, offset, queue and number in the queue of each."""
    chance = random.Random(start)
    print("opening", flush=True)
    with open_store(known, root) as store:
        number = start
        while True:
            count = chance.choice([1, 1, 3])
            # RocketMQ's producers choose the queue; JMQ's store does, but for ordered messages.
            fields = {"is_ordered": count == 1} if known is JMQ else {"queue_id": number % QUEUES}
            body = chance.randbytes(chance.randrange(300))
            batch = [known.build.message(number + i, body=body, **fields) for i in range(count)]
            results = store.put_batch(batch) if count > 1 else [store.put(batch[0])]
            for i, result in enumerate(results):
                queue_id = result.queue_id if known is JMQ else fields["queue_id"]
                print(number + i, known.offset_of(result), queue_id, result.queue_offset, flush=True)
            number += count


def key_of(message: Any) -> str:
    """Return the key that contains a message's number."""
    return str(message.business_id if hasattr(message, "business_id") else message.keys[0])


def index_headers(root: Path) -> dict[str, Header]:
    """Return the header of each index file, by its name."""
    return {path.name: parse_header(path.read_bytes()) for path in sorted((root / "index").iterdir())}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=BOLTMQ) if name == BOLTMQ_DIALECT.name else name for name in KINDS]
)
def test_every_acknowledged_message_is_stored_once_after_every_kill(tmp_path: Path, name: str) -> None:
    chance = random.Random(4711)
    root = tmp_path / "store"
    acknowledged: list[tuple[int, ...]] = []
    crashes = 0
    for kill in range(KILLS):
        # Every third is killed at once, in the middle of its recovery if it has one.
        seconds = chance.uniform(0, 0.02) if kill % 3 == 2 else chance.uniform(0.05, 0.4)
        acknowledged += numbers_until_killed(WRITER, name, root, 1_000_000 * kill, seconds=seconds)
        if kill % 2:
            crashes += check(KINDS[name], root, acknowledged)
    assert len(acknowledged) > KILLS
    assert crashes > KILLS // 4


def check(known: StoreFormat, root: Path, acknowledged: list[tuple[int, ...]]) -> bool:
    """Check that each acknowledged message is found in every way, once, and that queues have no holes and no others.

    Returns:
        True if the store had to be recovered from a crash.
    """
    with open_store(known, root) as store:
        for number, offset, queue_id, place in acknowledged:
            got = store.get_at(offset)
            assert got is not None, f"message {number} at {offset}"
            assert (key_of(got), got.queue_id, got.queue_offset) == (f"order-{number}", queue_id, place)
            assert store.get("orders", queue_id, place, 1).messages == [got]
            if known is ROCKETMQ:
                assert got in store.get_by_key("orders", f"order-{number}"), (got, index_headers(root), store.recovery)
        queues = all_messages(store)
        for queue in queues.values():
            assert [got.queue_offset for got in queue] == list(range(len(queue)))
        everything = [got for queue in queues.values() for got in queue]
        end = store.log_end
    assert len({key_of(got) for got in everything}) == len(everything)
    in_log = [known.offset_of(record) for record in known.read_log(root) if known.offset_of(record) < end]
    assert sorted(known.offset_of(got) for got in everything) == in_log
    return bool(store.recovery.crashed)
