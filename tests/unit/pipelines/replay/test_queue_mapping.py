"""Topic and queue of each message in the target."""

from __future__ import annotations

import pyarrow as pa
import pytest

from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.plan import QueueMapping, Target
from commitlake.pipelines.replay.queue_mapping import target_queues, target_topics
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash
from commitlake.schemas.remoting.routes import MessageQueue
from tests.support.exit_codes import exits
from tests.support.replays import rows_of

QUEUES = [MessageQueue("orders", broker, queue) for broker in ("broker-a", "broker-b") for queue in range(2)]


def queues_of(rows: pa.Table, mapping: QueueMapping = QueueMapping.SAME) -> list[int]:
    topics = target_topics(rows, "orders")
    numbers: list[int] = target_queues(rows, topics, Target("", "orders", mapping, ()), QUEUES).tolist()
    return numbers


def test_messages_go_to_their_original_topic() -> None:
    rows = rows_of([{"DLQ_ORIGIN_TOPIC": "orders"}, {"RETRY_TOPIC": "payments"}])
    rows = rows.set_column(rows.column_names.index("topic"), "topic", pa.array(["%DLQ%billing", "%RETRY%billing"]))
    assert target_topics(rows, None).to_pylist() == ["orders", "payments"]
    assert target_topics(rows, "mine").to_pylist() == ["mine", "mine"]
    # RETRY_TOPIC of a POP consumer's dead letter is its retry topic: the archive knows whose it is.
    popped = rows_of([{"RETRY_TOPIC": "%RETRY%billing_orders"}], topic="%DLQ%billing", origin_topic="orders")
    assert target_topics(popped, None).to_pylist() == ["orders"]
    assert target_topics(rows_of([{}, {}]), None).to_pylist() == ["orders", "orders"]


def test_a_dead_letter_without_its_original_topic_is_refused() -> None:
    rows = rows_of([{}], topic="%DLQ%billing")
    with pytest.raises(
        ReplayError, match=r"message ID0 in the topic %DLQ%billing is not known: give a topic with --to-topic"
    ):
        target_topics(rows, None)


def test_messages_go_to_the_queue_with_the_same_broker_and_number() -> None:
    assert queues_of(rows_of([{}] * 4)) == [0, 1, 0, 1]
    assert queues_of(rows_of([{}] * 4, broker="broker-b")) == [2, 3, 2, 3]


def test_a_broker_missing_from_the_target_is_mapped_to_one_of_its_brokers() -> None:
    found = queues_of(rows_of([{}] * 4, broker="old-name"))
    assert found in ([0, 1, 0, 1], [2, 3, 2, 3])


def test_a_queue_that_the_target_lacks_is_refused() -> None:
    with pytest.raises(
        ReplayError, match="broker broker-a has a queue 7 of the topic, but the target has only 2 queues"
    ):
        queues_of(rows_of([{}], queue_id=7))


def test_a_key_selects_the_queue_as_in_the_java_client() -> None:
    rows = pa.concat_tables([rows_of([{}], keys=[f"order-{number}", "all"]) for number in range(20)])
    expected = [abs(java_hash(f"order-{number}")) % 4 for number in range(20)]
    assert queues_of(rows, QueueMapping.KEY) == expected
    assert set(expected) == {0, 1, 2, 3}


def test_a_sharding_key_selects_the_queue() -> None:
    rows = rows_of([{"__SHARDINGKEY": f"customer-{number % 3}"} for number in range(9)])
    found = queues_of(rows, QueueMapping.SHARDING_KEY)
    assert found == [abs(java_hash(f"customer-{number % 3}")) % 4 for number in range(9)]


@pytest.mark.parametrize("mapping", [QueueMapping.KEY, QueueMapping.SHARDING_KEY])
def test_messages_without_a_key_stay_together_by_queue(mapping: QueueMapping) -> None:
    found = queues_of(rows_of([{}] * 6), mapping)
    assert found[0] == found[2] == found[4]
    assert found[1] == found[3] == found[5]


def test_a_topic_that_is_not_in_the_plan_is_refused() -> None:
    with pytest.raises(ReplayError, match="the target has no topic orders", check=exits(ExitCode.REFUSED)):
        target_queues(rows_of([{}]), target_topics(rows_of([{}]), None), Target("", None, QueueMapping.SAME, ()), [])
