"""Delivery of messages: every record that a message leaves, in order, with its properties.

The expected properties are those of a real RocketMQ 5.5.0's records.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from commitlake.broker_lite.delivery import Delivery, SendBackError, TransactionError
from commitlake.broker_lite.stores.rocketmq import MessageRefusedError, MessageStore
from commitlake.schemas.layouts.rocketmq.commitlog import Message, NewMessage
from tests.support.message_stores import BORN_MS, BROKER, PRODUCER, SMALL, log_records, message
from tests.support.small_stores import STORED_MS, Clock, crash

OWN = {"UNIQ_KEY": "U", "KEYS": "order-1", "TAGS": "new"}
HALF = OWN | {"TRAN_MSG": "true", "PGROUP": "shop"}


@pytest.fixture
def delivery(store: MessageStore) -> Delivery:
    """A broker on the store."""
    return Delivery(store)


def sent(queue_id: int = 3, **properties: str) -> NewMessage:
    """Return a producer's message."""
    return message(1, queue_id=queue_id, flag=9, sys_flag=0x301, properties=tuple((OWN | properties).items()))


def half_message() -> NewMessage:
    """Return a producer's half message; clients set these bits on sending, and brokers clear them."""
    return message(1, queue_id=3, sys_flag=0x4 | 0x301, properties=tuple(HALF.items()))


def places(records: list[Message]) -> list[tuple[str, int, int, int]]:
    """Return topic, queue, queue offset and number of retries of every record."""
    return [(record.topic, record.queue_id, record.queue_offset, record.reconsume_times) for record in records]


def assert_same_content(records: list[Message]) -> None:
    """Check every field that must not change when a record is stored again."""
    first = records[0]
    for record in records:
        assert (record.body, record.flag, record.sys_flag & 0x701) == (first.body, first.flag, first.sys_flag & 0x701)
        assert (record.born_timestamp, record.born_host) == (BORN_MS, PRODUCER)
        assert {key: record.properties[key] for key in OWN} == OWN


def test_message_without_delay_is_stored_in_its_topic(root: Path, delivery: Delivery) -> None:
    delivery.send(sent())
    delivery.send(sent(DELAY="0"))
    delivery.send(sent(DELAY="-1"))
    assert places(list(log_records(root))) == [("orders", 3, number, 0) for number in range(3)]


def test_delayed_message_waits_and_is_delivered_when_due(root: Path, delivery: Delivery, clock: Clock) -> None:
    delivery.send(sent(DELAY="3"))
    due_ms = STORED_MS + 10_000
    assert delivery.next_due_ms() == due_ms
    assert delivery.deliver_due(due_ms - 1) == []
    clock.now_ms = due_ms
    (result,) = delivery.deliver_due(due_ms)
    assert delivery.next_due_ms() is None
    parked, delivered = records = list(log_records(root))
    assert places(records) == [("SCHEDULE_TOPIC_XXXX", 2, 0, 0), ("orders", 3, 0, 0)]
    # All three stay on the delivered message.
    expected = OWN | {"DELAY": "3", "REAL_TOPIC": "orders", "REAL_QID": "3"}
    assert parked.properties == delivered.properties == expected
    assert (delivered.store_timestamp, delivered.physical_offset) == (due_ms, result.physical_offset)
    assert delivered.prepared_transaction_offset == 0
    assert_same_content(records)


def test_level_above_the_highest_is_the_highest(root: Path, delivery: Delivery) -> None:
    delivery.send(sent(DELAY="99"))
    (parked,) = log_records(root)
    assert (parked.queue_id, parked.properties["DELAY"]) == (17, "18")
    assert delivery.next_due_ms() == STORED_MS + 2 * 3_600_000


def test_delay_that_is_not_a_number_is_refused(root: Path, delivery: Delivery) -> None:
    with pytest.raises(MessageRefusedError, match="DELAY: expected a whole number as the delay level, found 'soon'"):
        delivery.send(sent(DELAY="soon"))
    assert list(log_records(root)) == []


def test_messages_of_all_levels_are_delivered_in_the_order_of_their_due_times(
    root: Path, delivery: Delivery, clock: Clock
) -> None:
    for number, level in enumerate(("4", "1", "3", "2", "1")):
        delivery.send(message(number, properties=(("DELAY", level),)))
        clock.now_ms += 500
    clock.now_ms += 3_600_000
    delivery.deliver_due(clock.now_ms)
    delivered = [record.body for record in log_records(delivery.store.path) if record.topic == "orders"]
    assert delivered == [f"body {number}".encode() for number in (1, 4, 3, 2, 0)]


def test_messages_that_are_not_due_delay_only_their_own_level(delivery: Delivery, clock: Clock) -> None:
    delivery.send(message(0, properties=(("DELAY", "5"),)))
    delivery.send(message(1, properties=(("DELAY", "2"),)))
    assert len(delivery.deliver_due(clock.now_ms + 5_000)) == 1
    assert delivery.next_due_ms() == STORED_MS + 60_000


def test_message_is_delivered_immediately_if_the_clock_was_put_back(delivery: Delivery, clock: Clock) -> None:
    delivery.send(sent(DELAY="3"))
    assert delivery.deliver_due(STORED_MS - 1) != []


def test_delivery_continues_after_a_restart(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for number in range(3):
            delivery.send(message(number, properties=(("DELAY", "2"),)))
            clock.now_ms += 1000
        assert len(delivery.deliver_due(STORED_MS + 6000)) == 2
    assert "2:2" in (root / "config" / "delayOffset.json").read_text()
    with MessageStore.open(root, SMALL, clock=clock) as store:
        assert len(Delivery(store).deliver_due(clock.now_ms + 10_000)) == 1
        assert [got.body for got in store.get("orders", 0, 0).messages] == [b"body 0", b"body 1", b"body 2"]


def test_position_after_the_end_of_a_queue_is_reset(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        store.config.delay_offsets.set(2, 77)
        delivery = Delivery(store)
        delivery.send(sent(DELAY="2"))
        assert len(delivery.deliver_due(clock.now_ms + 5000)) == 1


@pytest.mark.parametrize(
    "properties",
    [
        (("DELAY", "1"),),
        (("DELAY", "1"), ("REAL_TOPIC", "../x"), ("REAL_QID", "0")),
        (("DELAY", "1"), ("REAL_TOPIC", "orders"), ("REAL_QID", "first")),
        (("DELAY", "1"), ("REAL_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"), ("REAL_QID", "0")),
    ],
)
def test_delayed_record_without_a_valid_target_does_not_stop_its_level(
    delivery: Delivery, clock: Clock, properties: tuple[tuple[str, str], ...]
) -> None:
    delivery.store.put(message(topic="SCHEDULE_TOPIC_XXXX", properties=properties))
    delivery.send(sent(DELAY="1"))
    (result,) = delivery.deliver_due(clock.now_ms + 1000)
    assert delivery.store.get_at(result.physical_offset).topic == "orders"  # type: ignore[union-attr]


def test_failed_message_is_retried_and_becomes_a_dead_letter(root: Path, delivery: Delivery, clock: Clock) -> None:
    first = failed = delivery.send(sent(WAIT="true"))
    for _ in range(2):
        assert delivery.send_back("ship", failed.physical_offset, max_reconsume_times=2) is not None
        clock.now_ms = delivery.next_due_ms() or 0
        (failed,) = delivery.deliver_due(clock.now_ms)
    assert delivery.send_back("ship", failed.physical_offset, max_reconsume_times=2) is not None
    records = list(log_records(root))
    assert places(records) == [
        ("orders", 3, 0, 0),
        ("SCHEDULE_TOPIC_XXXX", 2, 0, 1),
        ("%RETRY%ship", 0, 0, 1),
        ("SCHEDULE_TOPIC_XXXX", 3, 0, 2),
        ("%RETRY%ship", 0, 1, 2),
        ("%DLQ%ship", 0, 0, 3),
    ]
    common = OWN | {
        "WAIT": "false",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": first.msg_id,
        "REAL_TOPIC": "%RETRY%ship",
        "REAL_QID": "0",
    }
    delays = [record.properties["DELAY"] for record in records[1:]]
    assert delays == ["3", "3", "4", "4", "0"]
    assert all(
        record.properties == common | {"DELAY": delay} for record, delay in zip(records[1:], delays, strict=True)
    )
    waited = [later.store_timestamp - sooner.store_timestamp for sooner, later in pairwise(records)]
    assert waited == [0, 10_000, 0, 30_000, 0]
    assert_same_content(records)


def test_the_group_limits_how_often_a_message_is_retried(delivery: Delivery) -> None:
    delivery.store.config.groups.create("ship", retry_max_times=0)
    result = delivery.send_back("ship", delivery.send(sent()).physical_offset)
    assert result is not None
    assert delivery.store.get_at(result.physical_offset).topic == "%DLQ%ship"  # type: ignore[union-attr]


def test_negative_delay_level_makes_a_dead_letter_immediately(root: Path, delivery: Delivery) -> None:
    delivery.send_back("ship", delivery.send(sent()).physical_offset, delay_level=-1)
    assert places(list(log_records(root)))[-1] == ("%DLQ%ship", 0, 0, 1)


def test_consumer_may_ask_for_a_delay_level(root: Path, delivery: Delivery) -> None:
    delivery.send_back("ship", delivery.send(sent()).physical_offset, delay_level=7)
    assert places(list(log_records(root)))[-1] == ("SCHEDULE_TOPIC_XXXX", 6, 0, 1)


def test_group_without_retry_queues_drops_its_failures(root: Path, delivery: Delivery) -> None:
    delivery.store.config.groups.create("ship", retry_queue_count=0)
    assert delivery.send_back("ship", delivery.send(sent()).physical_offset) is None
    assert len(list(log_records(root))) == 1


def test_sending_back_a_message_that_does_not_exist_is_an_error(delivery: Delivery) -> None:
    with pytest.raises(SendBackError, match="there is no message to send back at physical offset 5"):
        delivery.send_back("ship", 5)


def test_retry_of_a_committed_message_keeps_its_transaction_type(root: Path, delivery: Delivery, clock: Clock) -> None:
    half = delivery.send(half_message())
    delivery.send_back("ship", delivery.commit("shop", half.physical_offset).physical_offset)
    clock.now_ms += 10_000
    delivery.deliver_due(clock.now_ms)
    types = [(record.topic, record.sys_flag & 0xC, record.prepared_transaction_offset) for record in log_records(root)]
    assert types[1] == ("orders", 0x8, half.physical_offset)
    assert types[3:] == [("SCHEDULE_TOPIC_XXXX", 0x8, 0), ("%RETRY%ship", 0x8, 0)]


def test_half_message_is_delivered_when_it_is_committed(root: Path, delivery: Delivery, clock: Clock) -> None:
    delivery.store.put(message(topic="elsewhere"))
    half = delivery.send(half_message())
    assert [pending.physical_offset for pending in delivery.pending_half_messages()] == [half.physical_offset]
    clock.now_ms += 70
    result = delivery.commit("shop", half.physical_offset)
    assert delivery.pending_half_messages() == []
    _, prepared, committed, mark = log_records(root)
    assert places([prepared, committed, mark]) == [
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 0),
        ("orders", 3, 0, 0),
        ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0, 0),
    ]
    assert prepared.properties == HALF | {"__transactionId__": "U", "REAL_TOPIC": "orders", "REAL_QID": "3"}
    assert committed.properties == HALF | {"__transactionId__": "U"}
    assert (prepared.sys_flag, committed.sys_flag) == (0x301, 0x309)
    assert (prepared.prepared_transaction_offset, committed.prepared_transaction_offset) == (0, half.physical_offset)
    assert committed.physical_offset == result.physical_offset
    assert (mark.body, mark.properties, mark.sys_flag) == (b"0,", {"WAIT": "true", "TAGS": "d"}, 0)
    assert (mark.born_host, mark.born_timestamp) == (BROKER, STORED_MS + 70)
    assert_same_content([prepared, committed])


def test_half_message_that_is_rolled_back_leaves_only_a_mark(root: Path, delivery: Delivery) -> None:
    halves = [delivery.send(half_message()) for _ in range(2)]
    delivery.rollback("shop", halves[1].physical_offset)
    *_, mark = log_records(root)
    assert (mark.topic, mark.body) == ("RMQ_SYS_TRANS_OP_HALF_TOPIC", b"1,")
    assert delivery.store.queues == [("RMQ_SYS_TRANS_HALF_TOPIC", 0), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0)]
    assert [pending.queue_offset for pending in delivery.pending_half_messages()] == [0]


def test_decision_is_made_once_and_by_the_producer_only(delivery: Delivery) -> None:
    half = delivery.send(half_message()).physical_offset
    with pytest.raises(TransactionError, match="belongs to the producer group shop, found other"):
        delivery.commit("other", half)
    with pytest.raises(TransactionError, match=r"expected a half message at physical offset 7, found none"):
        delivery.commit("shop", 7)
    delivery.commit("shop", half)
    for decide in (delivery.commit, delivery.rollback):
        with pytest.raises(TransactionError, match="is no longer undecided: it was committed"):
            decide("shop", half)
    with pytest.raises(TransactionError, match=r"expected a half message at .*, found orders"):
        delivery.commit("shop", delivery.send(sent()).physical_offset)


def test_half_message_without_a_target_cannot_be_committed(delivery: Delivery) -> None:
    half = delivery.store.put(message(topic="RMQ_SYS_TRANS_HALF_TOPIC", properties=(("PGROUP", "shop"),)))
    with pytest.raises(TransactionError, match="REAL_TOPIC: expected a topic to which producers may send"):
        delivery.commit("shop", half.physical_offset)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (HALF | {"DELAY": "3"}, "expected a message without the property DELAY, found one with 3"),
        (OWN | {"TRAN_MSG": "true"}, "the property PGROUP, the producer group, is missing"),
    ],
)
def test_half_message_must_have_a_producer_and_no_delay(
    delivery: Delivery, properties: dict[str, str], expected: str
) -> None:
    with pytest.raises(TransactionError, match=expected):
        delivery.send(message(properties=tuple(properties.items())))
    assert delivery.store.max_physical_offset == 0


@pytest.mark.parametrize("clean", [True, False])
def test_pending_halves_are_known_after_a_restart(root: Path, clock: Clock, clean: bool) -> None:
    store = MessageStore.open(root, SMALL, clock=clock)
    delivery = Delivery(store)
    halves = [delivery.send(half_message()).physical_offset for _ in range(5)]
    for decide, number in ((delivery.commit, 3), (delivery.rollback, 0), (delivery.commit, 1)):
        decide("shop", halves[number])
    store.close() if clean else crash(store)
    with MessageStore.open(root, SMALL, clock=clock) as again:
        delivery = Delivery(again)
        assert [pending.queue_offset for pending in delivery.pending_half_messages()] == [2, 4]
        with pytest.raises(TransactionError, match="is no longer undecided"):
            delivery.commit("shop", halves[3])
        delivery.commit("shop", halves[2])
        assert [pending.queue_offset for pending in delivery.pending_half_messages()] == [4]


def test_progress_of_transactions_is_stored_as_offsets_of_the_brokers_own_group(delivery: Delivery) -> None:
    offsets = delivery.store.config.consumer_offsets
    halves = [delivery.send(half_message()).physical_offset for _ in range(3)]

    def progress() -> tuple[int | None, int | None]:
        topics = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")
        half, op = (offsets.get(topic, "CID_RMQ_SYS_TRANS", 0) for topic in topics)
        return half, op

    seen = []
    for number in (1, 2, 0):
        delivery.commit("shop", halves[number])
        seen.append(progress())
    # Only a decision about the oldest message advances the progress, then past all.
    assert seen == [(0, 0), (0, 0), (3, 3)]


def test_marks_of_older_brokers_and_of_several_halves_are_read(root: Path, clock: Clock) -> None:
    with MessageStore.open(root, SMALL, clock=clock) as store:
        delivery = Delivery(store)
        for _ in range(5):
            delivery.send(half_message())
        for body in (b"3", b"0,1,"):
            store.put(message(topic="RMQ_SYS_TRANS_OP_HALF_TOPIC", body=body, properties=(("TAGS", "d"),)))
        assert [pending.queue_offset for pending in Delivery(store).pending_half_messages()] == [2, 4]


def test_waiting_and_undecided_messages_cannot_be_sent_back(root: Path, delivery: Delivery) -> None:
    delivery.send(half_message())
    delivery.send(sent(DELAY="2"))
    delivery.send(sent(TIMER_DELAY_SEC="9"))
    for waiting in list(log_records(root)):
        with pytest.raises(SendBackError, match="expected a message of a consumer"):
            delivery.send_back("ship", waiting.physical_offset)
