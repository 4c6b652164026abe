"""Timers of a restored store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.broker_lite.delivery import Delivery
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.timers import parse_timer_checkpoint
from tests.support.indexed_stores import OPTIONS
from tests.support.message_stores import PRODUCER
from tests.support.restored_stores import Archive, Restore
from tests.support.small_stores import STORED_MS, Clock


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((5, 6, 500, 7, 600), 2),  # from the first that waits on
        ((5, 6, 7), 3),  # all were delivered
        ((5, 78, 500), 1),  # one of the last ten seconds may not have been
    ],
)
def test_a_broker_begins_with_the_first_waiting_timer(
    tmp_path: Path, archive: Archive, restore: Restore, seconds: tuple[int, ...], expected: int
) -> None:
    clock = Clock(STORED_MS)
    with MessageStore.open(tmp_path / "store", OPTIONS, clock=clock) as store:
        delivery = Delivery(store)
        for number, delay in enumerate(seconds):
            pairs = (("UNIQ_KEY", f"U{number}"), ("TIMER_DELAY_SEC", str(delay)))
            delivery.send(NewMessage("orders", b"x", STORED_MS, PRODUCER, properties=pairs))
        clock.now_ms += 80_000
        delivery.deliver_due(clock.now_ms)
        store.put(NewMessage("orders", b"last", STORED_MS, PRODUCER))
    restored = restore(archive(tmp_path / "store"))
    found = parse_timer_checkpoint((restored.out / "config" / "timercheck").read_bytes())
    assert (found.last_timer_queue_offset, found.master_timer_queue_offset) == (expected, expected)
    options = replace(OPTIONS, segment_size_bytes=restored.segment_size)
    with MessageStore.open(restored.out, options, clock=clock) as store:
        before = store.max_offset("orders", 0)
        clock.now_ms += 1_000_000
        Delivery(store).deliver_due(clock.now_ms)
        # Messages that were delivered before are found by the index.
        assert store.max_offset("orders", 0) - before == sum(delay > 80 for delay in seconds)
