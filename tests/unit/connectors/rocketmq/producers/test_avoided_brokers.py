"""Choice of the brokers to avoid after failures, and for how long."""

from __future__ import annotations

import pytest

from commitlake.connectors.rocketmq.producers.sending import BrokerFaults, avoidance_ms, choose_queue
from commitlake.schemas.remoting.routes import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]


@pytest.mark.parametrize(
    ("latency_ms", "duration_ms"),
    [
        (0, 0), (49, 0), (50, 0), (100, 0), (549, 0), (550, 2000), (1800, 5000), (2999, 5000), (3000, 6000),
        (5000, 10000), (14999, 10000), (15000, 30000), (10**9, 30000),
    ],
)  # fmt: skip
def test_pauses_equal_rocketmqs(latency_ms: int, duration_ms: int) -> None:
    assert avoidance_ms(latency_ms) == duration_ms


def test_a_slow_broker_is_avoided_for_a_time() -> None:
    faults = BrokerFaults()
    faults.record_answer("a", 600, now_ms=1000)
    assert [faults.is_available("a", now) for now in (1000, 2999, 3000)] == [False, False, True]
    assert faults.is_available("b", 1000)


def test_a_failed_broker_is_avoided_for_ten_seconds_or_until_it_answers() -> None:
    faults = BrokerFaults()
    faults.record_answer("a", 1, now_ms=0, has_failed=True)
    assert [faults.is_available("a", now) for now in (9_999, 10_000)] == [False, True]
    faults.record_answer("a", 1, now_ms=5)
    assert faults.is_available("a", 5)


def test_queues_are_chosen_in_turn() -> None:
    assert [choose_queue(QUEUES, turn, None, None, 0) for turn in range(5)] == [*QUEUES, QUEUES[0]]


def test_the_next_attempt_uses_another_broker() -> None:
    chosen = {choose_queue(QUEUES, turn, "a", None, 0).broker_name for turn in range(4)}
    assert chosen == {"b"}
    alone = QUEUES[:2]
    assert choose_queue(alone, 1, "a", None, 0) == alone[1]


def test_a_failed_broker_is_chosen_only_if_there_is_no_other() -> None:
    faults = BrokerFaults()
    faults.record_answer("a", 1, 0, has_failed=True)
    assert {choose_queue(QUEUES, turn, None, faults, 1).broker_name for turn in range(4)} == {"b"}
    faults.record_answer("b", 1, 0, has_failed=True)
    assert {choose_queue(QUEUES, turn, None, faults, 1).broker_name for turn in range(4)} == {"a", "b"}
    # The last try's broker stays the last resort.
    assert {choose_queue(QUEUES, turn, "b", faults, 1).broker_name for turn in range(4)} == {"a"}
