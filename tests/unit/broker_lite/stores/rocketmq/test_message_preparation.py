"""Tests of prepared messages: fast and general preparation give the same bytes, and refusals change nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageRefusedError, MessageStore
from commitlake.broker_lite.stores.rocketmq.message_preparation import SentMessage
from commitlake.schemas.layouts.rocketmq.commitlog import NewMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from tests.support.message_stores import BORN_MS, PRODUCER, log_records, message

KNOWN = {"UNIQ_KEY": "U1", "KEYS": "order-1 order-2", "TAGS": "订单"}


def sent(**changes: object) -> SentMessage:
    """Return a message as a producer sends it."""
    message = SentMessage(
        "orders", 1, b"body", BORN_MS, PRODUCER, 7, 0x301, 2, KNOWN, serialize_properties(KNOWN.items())
    )
    return message._replace(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "message",
    [
        sent(),
        sent(body=b""),
        sent(sys_flag=0x30),
        sent(properties={}, stored_properties=b""),
        sent(born_host=Host.of("2001:db8::1", 50123)),
        sent(topic="%RETRY%" + "g" * 130),
    ],
    ids=["plain", "empty body", "host bits are the store's", "no properties", "IPv6", "long topic"],
)
def test_fast_and_general_preparation_give_the_same_bytes(store: MessageStore, message: SentMessage) -> None:
    quick = store.preparer.prepare_sent(message)
    general = store.preparer.prepare(message.as_new_message())
    assert quick == general
    assert store.send(message).size == store.put(message.as_new_message()).size
    first, second = store.get(message.topic, 1, 0).messages
    assert (first.body, first.raw_properties, first.sys_flag) == (second.body, second.raw_properties, second.sys_flag)


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "or/ders"},
        {"topic": "x" * 128},
        {"body": b"x" * 2049},
        {"queue_id": -1},
        {"queue_id": 1 << 31},
        {"flag": 1 << 31},
        {"sys_flag": 1 << 40},
        {"born_timestamp": 1 << 63},
        {"reconsume_times": -(1 << 31) - 1},
        {"stored_properties": b"x" * 32_768},
    ],
)
def test_a_refused_message_leaves_the_log_unchanged(store: MessageStore, changes: dict[str, object]) -> None:
    with pytest.raises(MessageRefusedError):
        store.send(sent(**changes))
    assert store.log_end == 0


def test_a_batch_is_appended_together(store: MessageStore) -> None:
    results = store.send_batch([sent(body=b"x" * 700) for _ in range(4)])
    assert [result.queue_offset for result in results] == [0, 1, 2, 3]
    assert store.take_queues_with_new_messages() == {("orders", 1)}
    assert store.take_queues_with_new_messages() == set()


PROPERTIES_LIMIT = 32_767


def property_of_size(size: int) -> tuple[tuple[str, str], ...]:
    """Return one property that takes this many bytes in a record."""
    return (("K", "v" * (size - 3)),)


@pytest.mark.parametrize(
    "topic",
    ["../orders", "a/b", "", "orders ", "a.b", "Bestellungen-ü", "x" * 128, "%RETRY%" + "g" * 249, "%DLQ%" + "g" * 123],
)
def test_topics_that_no_broker_accepts_are_refused(store: MessageStore, topic: str) -> None:
    with pytest.raises(MessageRefusedError, match="topic: expected"):
        store.put(message(topic=topic))
    assert store.max_physical_offset == 0
    assert store.queues == []


@pytest.mark.parametrize("topic", ["x" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 122, "A|b_9-%"])
def test_topics_up_to_the_limit_are_accepted(store: MessageStore, topic: str) -> None:
    store.put(message(topic=topic))
    assert store.get(topic, 0, 0).messages[0].topic == topic


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"body": b"x" * 2049}, "body: expected at most 2048 bytes, found 2049"),
        ({"queue_id": -1}, "queue_id: expected 0 to 2147483647, found -1"),
        ({"queue_id": 1 << 31}, "queue_id: expected 0 to 2147483647, found 2147483648"),
        ({"flag": 1 << 31}, "flag: expected -2147483648 to 2147483647"),
        ({"sys_flag": 1 << 31}, "sys_flag: expected"),
        ({"reconsume_times": -(1 << 31) - 1}, "reconsume_times: expected"),
        ({"prepared_transaction_offset": 1 << 63}, "prepared_transaction_offset: expected"),
        ({"properties": (("", "v"),)}, "keys and values of at least one character"),
        ({"properties": (("k", ""),)}, "keys and values of at least one character"),
        ({"properties": (("k", "a\x02b"),)}, "no 0x01 or 0x02"),
        ({"properties": (("k\x01", "v"),)}, "no 0x01 or 0x02"),
        ({"properties": (("k", "\ud800"),)}, "surrogates not allowed"),
        ({"properties": property_of_size(PROPERTIES_LIMIT + 1)}, "at most 32767 bytes, found 32768"),
        ({"topic": "SCHEDULE_TOPIC_XXXX", "properties": (("DELAY", "soon"),)}, "DELAY: expected a whole number"),
    ],
)
def test_messages_beyond_the_limits_are_refused(store: MessageStore, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(MessageRefusedError, match=expected):
        store.put(message(**changes))
    assert store.max_physical_offset == 0


def test_born_host_must_be_an_address_and_a_port(store: MessageStore) -> None:
    for host in (Host(b"\0\0\0", 1), Host(b"\0\0\0\0", -1)):
        with pytest.raises(MessageRefusedError, match="born_host: expected"):
            store.put(NewMessage("orders", b"", 0, host))


def test_store_accepts_the_next_message_after_a_refused_one(root: Path, store: MessageStore) -> None:
    store.put(message(0))
    with pytest.raises(MessageRefusedError):
        store.put(message(1, properties=(("k", ""),)))
    assert store.put(message(2)).queue_offset == 1
    assert [record.body for record in log_records(root)] == [b"body 0", b"body 2"]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], "batch: expected at least one message"),
        (
            [message(0), message(1, "payments")],
            "batch: expected messages of one queue, found messages of orders/0 and payments/0",
        ),
        (
            [message(0), message(1, queue_id=1)],
            "batch: expected messages of one queue, found messages of orders/0 and orders/1",
        ),
        (
            [message(0), message(1, sys_flag=0x8)],
            "batch: expected messages without a transaction, found one with sys_flag 0x8",
        ),
        ([message(0, body=b"x" * 1000)] * 2, "batch: expected at most 2048 bytes in total"),
        ([message(0, properties=(("k", "\ud800"),))], "surrogates not allowed"),
    ],
)
def test_batches_that_no_broker_accepts_are_refused(
    store: MessageStore, messages: list[NewMessage], expected: str
) -> None:
    with pytest.raises(MessageRefusedError, match=expected):
        store.put_batch(messages)
    assert store.max_physical_offset == 0


def test_batch_may_be_as_large_as_a_producer_may_send(store: MessageStore) -> None:
    # A producer's frame has 22 bytes for each message besides body and properties.
    batch = [message(number, body=b"x" * (1024 - 22), properties=()) for number in range(2)]
    assert len(store.put_batch(batch)) == 2
    with pytest.raises(MessageRefusedError, match="batch: expected at most 2048 bytes in total, found 2049"):
        store.put_batch([batch[0], message(1, body=b"x" * (1024 - 21), properties=())])
    properties = (("ü", "v"),)
    with pytest.raises(MessageRefusedError, match="found 2053"):
        store.put_batch([batch[0], message(1, body=b"x" * (1024 - 22), properties=properties)])


def test_one_bad_message_refuses_its_whole_batch(store: MessageStore) -> None:
    with pytest.raises(MessageRefusedError):
        store.put_batch([message(0), message(1, properties=(("k", ""),)), message(2)])
    assert store.max_physical_offset == 0
    assert store.put(message(3)).queue_offset == 0
