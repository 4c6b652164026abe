"""Targets of waiting records: the queue in their properties, if a producer could have sent to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.delivery import Delivery, TransactionError
from commitlake.broker_lite.stores.rocketmq import MessageStore
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from tests.support.message_stores import SMALL, message
from tests.support.small_stores import Clock

FORBIDDEN = [
    (OP_TOPIC, "0"),
    (HALF_TOPIC, "0"),
    (SCHEDULE_TOPIC, "1"),
    (TIMER_TOPIC, "0"),
    ("rmq_sys_REVIVE_LOG_DefaultCluster", "0"),
    ("TRANS_CHECK_MAX_TIME_TOPIC", "0"),
    ("../orders", "0"),
    ("", "0"),
    ("orders", "2147483647"),
    ("orders", "1024"),
    ("orders", "-1"),
    ("orders", "x"),
    ("orders", "9" * 1000),
    ("orders", ""),
    ("unknown", "1024"),
]


def planted(topic: str, target: tuple[str, str]) -> dict[str, object]:
    """Return the fields of a waiting record with a target that no broker writes."""
    pairs = {"UNIQ_KEY": "U1", "TIMER_OUT_MS": "1000", "DELAY": "1", "PGROUP": "shop", "REAL_TOPIC": target[0]}
    pairs["REAL_QID"] = target[1]
    return {"topic": topic, "properties": tuple(pair for pair in pairs.items() if pair[1])}


@pytest.mark.parametrize("waits_in", [TIMER_TOPIC, SCHEDULE_TOPIC])
def test_records_with_forbidden_targets_are_left_out(root: Path, clock: Clock, waits_in: str) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.put(message(1))
        for target in FORBIDDEN:
            store.put(message(2, **planted(waits_in, target)))  # type: ignore[arg-type]
        store.put(message(3, **planted(waits_in, ("orders", "3"))))  # type: ignore[arg-type]
        before = {queue: store.max_offset(*queue) for queue in store.queues}
    for _ in range(2):
        clock.now_ms += 10_000
        with MessageStore.open(root, SMALL, clock=clock) as store:
            Delivery(store).deliver_due(clock.now_ms)
            assert {queue: store.max_offset(*queue) for queue in store.queues} == before | {("orders", 3): 1}
            assert store.config.topics.queue_count("orders") == 4
            assert "unknown" not in store.config.topics.entries


@pytest.mark.parametrize("waits_in", [TIMER_TOPIC, SCHEDULE_TOPIC])
def test_a_message_for_a_removed_queue_is_delivered_to_another_queue(root: Path, clock: Clock, waits_in: str) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.config.topics.create("orders", 4)
        store.put(message(2, **planted(waits_in, ("orders", "6"))))  # type: ignore[arg-type]
        clock.now_ms += 10_000
        Delivery(store).deliver_due(clock.now_ms)
        assert store.max_offset("orders", 2) == 1
        assert store.config.topics.queue_count("orders") == 4


def test_halves_with_forbidden_targets_can_only_be_rolled_back(store: MessageStore) -> None:
    store.put(message(1))
    halves = [store.put(message(2, **planted(HALF_TOPIC, target))) for target in FORBIDDEN]  # type: ignore[arg-type]
    delivery = Delivery(store)
    for half in halves:
        with pytest.raises(TransactionError, match=r"REAL_(TOPIC|QID): expected"):
            delivery.commit("shop", half.physical_offset)
    assert len(delivery.pending_half_messages()) == len(FORBIDDEN)
    for half in halves:
        delivery.rollback("shop", half.physical_offset)
    assert delivery.pending_half_messages() == []


def test_a_queue_folder_with_an_impossible_number_does_not_extend_the_topic(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.put(message(1))
        store.put(message(2, queue_id=2_147_483_647))
        assert store.config.topics.queue_count("orders") == 4
    with MessageStore.open(root, SMALL, clock=clock) as store:
        assert store.config.topics.queue_count("orders") == 4
        assert store.max_offset("orders", 2_147_483_647) == 1
