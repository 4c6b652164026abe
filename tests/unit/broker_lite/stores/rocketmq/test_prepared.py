"""Tests that fast preparation of a producer's message gives the same bytes as general preparation."""

from __future__ import annotations

import pytest

from commitlake.broker_lite.stores.rocketmq import MessageRefusedError, MessageStore
from commitlake.broker_lite.stores.rocketmq.prepared import SentMessage
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from tests.support.message_stores import BORN_MS, PRODUCER

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
    quick = store.preparing.prepare_sent(message)
    general = store.preparing.prepare(message.with_pairs())
    assert quick == general
    assert store.send(message).size == store.put(message.with_pairs()).size
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
    assert store.take_arrived() == {("orders", 1)}
    assert store.take_arrived() == set()
