"""A consumer that is killed: every message is consumed, or waits in the retry store; none is lost in between.

The process takes batches, fails at random, and prints each result after `finish` has returned; it is killed with
SIGKILL at a random moment. Messages may be delivered again, but a printed result is never lost.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

from hypothesis import settings

from commitlake.broker_lite.stores.jmq import Consuming, JournalStore
from commitlake.broker_lite.stores.rocketmq import FlushMode
from commitlake.schemas.layouts.jmq.consume_records import Consumption, DeliveryOutcome
from tests.support.hypothesis_profiles import load
from tests.support.journal_stores import CLIENT, SMALL, message
from tests.support.kills import numbers_until_killed
from tests.support.waiting import let_pass

load()

KILLS = max(5, settings().max_examples // 60)
COUNT = 6000
OPTIONS = replace(
    SMALL, journal_file_size_bytes=1 << 16, queue_count=3, consume_file_size_bytes=1 << 14, flush_mode=FlushMode.SYNC
)
CONSUMER = """
import random, sys
from commitlake.broker_lite.stores.jmq import Consuming, JournalStore
from tests.property.broker_lite.test_journal_killed_consumer import OPTIONS
from tests.support.journal_stores import CLIENT

chance = random.Random(int(sys.argv[2]))
print("opening", flush=True)
with JournalStore.open(sys.argv[1], OPTIONS) as store:
    consuming = Consuming(store)
    while True:
        batch = consuming.take_batch("orders", "mail", chance.randrange(3), CLIENT, 5)
        if batch is not None:
            failed = {one.queue_offset: "by chance" for one in batch.messages if chance.random() < 0.1}
            consuming.finish_batch(batch, failed)
            for one in batch.messages:
                print(one.queue_id, one.queue_offset, 2 if one.queue_offset in failed else 1, flush=True)
        if chance.random() < 0.1:
            store.offsets.save_if_changed()
"""


def test_no_message_is_lost_between_queue_retry_store_and_consumers(tmp_path: Path) -> None:
    chance = random.Random(4711)
    root = tmp_path / "store"
    with JournalStore.open(root, replace(OPTIONS, flush_mode=FlushMode.ASYNC)) as store:
        for number in range(COUNT):
            store.put(message(number), number % 3)
    told: Counter[tuple[int, ...]] = Counter()
    for kill in range(KILLS):
        told += Counter(numbers_until_killed(CONSUMER, root, kill, seconds=chance.uniform(0.02, 0.3)))
    assert told
    with JournalStore.open(root, OPTIONS) as store:
        consuming = Consuming(store)
        for queue_id in range(3):
            while (batch := consuming.take_batch("orders", "mail", queue_id, CLIENT, 100)) is not None:
                consuming.finish_batch(batch)
        store.flush()
        logged: Counter[tuple[int, ...]] = Counter(
            (one.queue_id, one.queue_offset, int(one.outcome)) for one in all_consumptions(store)
        )
        assert not told - logged
        everything = {(queue_id, number) for queue_id in range(3) for number in range(COUNT // 3)}
        assert {(queue_id, number) for queue_id, number, _ in logged} == everything
        waiting = set()
        let_pass(1, "the last retry becomes due")
        while retries := consuming.take_retries("orders", "mail", 1000):
            for retry in retries:
                waiting.add((retry.message.queue_id, retry.message.queue_offset))
                assert retry.message.body == b"body %d" % (retry.message.queue_offset * 3 + retry.message.queue_id)
                consuming.retries.delete([retry.id])
        assert {place[:2] for place in logged if place[2] == DeliveryOutcome.FAILED} <= waiting
        consuming.close()


def all_consumptions(store: JournalStore) -> list[Consumption]:
    """Return all consumptions that the archive's agent reads."""
    found: list[Consumption] = []
    place = 0
    while (some := store.read_consumptions(place, 500))[0]:
        found += some[0]
        place = some[1]
    return found
