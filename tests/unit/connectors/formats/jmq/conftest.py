"""A store in JMQ's layout, written by the small broker."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlake.broker_lite.stores.jmq import JournalOptions, JournalStore
from commitlake.schemas.layouts.jmq.queue_file import ENTRY
from tests.support.indexed_stores import Clock
from tests.support.journal_plans import COUNT, FILE_BYTES, RARE
from tests.support.journals import new_message


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Several journal files and their queue files; every twentieth message is of the topic `rare`."""
    root = tmp_path_factory.mktemp("jmq")
    options = JournalOptions(
        journal_file_size_bytes=FILE_BYTES, queue_file_size_bytes=16 * ENTRY.size, max_body_size_bytes=2000
    )
    chance, clock = random.Random(1), Clock()
    with JournalStore.open(root, options, clock=clock, rng=chance) as store:
        for number in range(COUNT):
            topic = RARE if number % 20 == 0 else f"topic-{number % 3}"
            body = chance.randbytes(chance.randrange(200))
            store.put(new_message(number, topic, body, send_timestamp=clock.now_ms))
    return root
