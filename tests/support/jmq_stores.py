"""Small stores in JMQ's format with all kinds of content, written by broker_lite."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.schemas.layouts.jmq.offset_json import ConsumedQueue
from commitlake.schemas.layouts.jmq.queue_file import ENTRY
from tests.support.indexed_stores import Clock
from tests.support.journals import new_message

FILE_BYTES = 1 << 14
QUEUE_FILE_ENTRIES = 16
OPTIONS = JournalOptions(
    journal_file_size_bytes=FILE_BYTES, queue_file_size_bytes=QUEUE_FILE_ENTRIES * ENTRY.size, max_body_size_bytes=2000
)
RARE = "rare"


def put(store: JournalStore, clock: Clock, numbers: range, seed: int = 1) -> None:
    """Put messages of four topics; every twentieth is of the topic `rare`."""
    chance = random.Random(seed)
    for number in numbers:
        topic = RARE if number % 20 == 0 else f"topic-{number % 3}"
        body = chance.randbytes(chance.randrange(200))
        store.put(new_message(number, topic, body, send_timestamp=clock.now_ms))


def write_jmq_store(root: Path, count: int = 600) -> Path:
    """Create several journal files and queue files, and two applications with consumed messages."""
    clock = Clock()
    with JournalStore.open(root, OPTIONS, clock=clock, rng=random.Random(1)) as store:
        put(store, clock, range(count))
        for topic, app, ack in (("topic-1", "billing", 3), (RARE, "shipping", 1)):
            store.offsets.acknowledge(ConsumedQueue(topic, app, 0), ack)
    return root


def open_again(root: Path, **changes: object) -> None:
    """Open and close a store, so that it is recovered."""
    options = replace(OPTIONS, **changes)  # type: ignore[arg-type]
    with JournalStore.open(root, options, clock=Clock()):
        pass
