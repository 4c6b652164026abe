"""Tests of sends to a broker with a JMQ store: messages are stored in a journal, and returned as RocketMQ's records."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from commitlake.broker_lite.broker.broker import Broker
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.jmq.message_preparation import ordered_queue_id
from commitlake.broker_lite.stores.jmq_adapter import JmqStore
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from tests.support.brokers import PRODUCER_HOST, Peer, send_fields
from tests.support.jmq_brokers import OPTIONS, pull, send, send_back
from tests.support.journal_stores import BROKER
from tests.support.journals import original_body
from tests.support.message_stores import BORN_MS
from tests.support.small_stores import Clock

SEND = RequestCode.SEND_MESSAGE_V2
PREPARED, LZ4, ZLIB = 0x4, 0x101, 0x301


def test_a_message_is_stored_in_jmqs_fields(peer: Peer, store: JmqStore, clock: Clock) -> None:
    answer = send(peer, 7, e=2, h=4711)
    kept = store.journal.get("orders", 2, 0).messages[0]
    assert (kept.app, kept.business_id, kept.business_tag, kept.is_ordered) == ("producers", "order-7", 4711, False)
    assert (kept.client_address, kept.send_timestamp, kept.store_timestamp) == (PRODUCER_HOST, BORN_MS, clock.now_ms)
    assert kept.properties == {"UNIQ_KEY": "U7", "KEYS": "order-7", "TAGS": "tag1"}
    assert answer.ext_fields["msgId"] == serialize_message_id(BROKER, kept.journal_offset)
    assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("2", "0")


def test_a_message_is_returned_as_it_was_sent(peer: Peer, clock: Clock) -> None:
    sent = send(peer, 7, h=4711)
    (got,) = pull(peer, "orders")
    assert (got.body, got.flag, got.reconsume_times, got.sys_flag) == (b"body 7", 4711, 0, 0)
    assert got.properties == {"UNIQ_KEY": "U7", "KEYS": "order-7", "TAGS": "tag1"}
    assert (got.msg_id, got.born_host, got.store_host) == (sent.ext_fields["msgId"], PRODUCER_HOST, BROKER)
    assert (got.born_timestamp, got.store_timestamp) == (BORN_MS, clock.now_ms)


def test_consumers_receive_the_marks_of_a_broker_which_the_journal_does_not_store(tmp_path: Path, clock: Clock) -> None:
    options = BrokerOptions(address=BROKER, cluster="shops", region="north")
    with JmqStore.open(tmp_path / "named", OPTIONS, clock=clock, added_properties=options.added_properties()) as store:
        peer = Peer(Dispatcher(Broker(store, options)))
        send(peer)
        send_back(peer, pull(peer, "orders")[0], delayLevel=-1)
        expected = {"CLUSTER": "shops", "MSG_REGION": "north", "TRACE_ON": "true"}
        for topic in ("orders", "%DLQ%consumers"):
            assert [found.properties.items() >= expected.items() for found in pull(peer, topic)] == [True]
        assert not expected.keys() & store.journal.get("orders", 0, 0).messages[0].properties.keys()


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_large_body_is_a_zlib_stream_in_the_journal_and_for_consumers(
    peer: Peer, store: JmqStore, is_compressed: bool
) -> None:
    body = b"teapot, lamp, kite; " * 50
    sent, flag = (zlib.compress(body), ZLIB) if is_compressed else (body, 0)
    assert peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": "U1"}, f=flag), sent).code == 0
    kept = store.journal.get("orders", 0, 0).messages[0]
    (got,) = pull(peer, "orders")
    assert kept.is_compressed
    assert original_body(kept) == zlib.decompress(got.body) == body
    assert got.body_codec is BodyCodec.ZLIB


def test_ordered_messages_are_stored_in_the_queue_of_their_business_id(peer: Peer, store: JmqStore) -> None:
    for number in range(4):
        properties = {"UNIQ_KEY": f"U{number}", "KEYS": f"item-{number}", "__SHARDINGKEY": "order-4711"}
        answer = peer.ask(SEND, send_fields("orders", properties, e=number), b"")
        queue_id = ordered_queue_id("order-4711", 4)
        assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == (str(queue_id), str(number))
    kept = store.journal.get("orders", queue_id, 0).messages
    assert [(one.is_ordered, one.business_id, one.properties["KEYS"]) for one in kept] == [
        (True, "order-4711", f"item-{number}") for number in range(4)
    ]


def test_the_queue_of_a_business_id_depends_on_the_number_of_queues(peer: Peer) -> None:
    made = {"topic": "ledger", "defaultTopic": "TBW102", "readQueueNums": 11, "writeQueueNums": 11, "perm": 6,
            "topicFilterType": "SINGLE_TAG"}  # fmt: skip
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made).code == ResponseCode.SUCCESS
    for key in ("order-1", "order-2", "order-3"):
        answer = peer.ask(SEND, send_fields("ledger", {"UNIQ_KEY": key, "__SHARDINGKEY": key}), b"")
        assert answer.ext_fields["queueId"] == str(ordered_queue_id(key, 11))


def test_a_topic_with_more_than_255_queues_is_refused(peer: Peer) -> None:
    made = {"topic": "ledger", "defaultTopic": "TBW102", "readQueueNums": 256, "writeQueueNums": 256, "perm": 6,
            "topicFilterType": "SINGLE_TAG"}  # fmt: skip
    answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, made)
    assert (answer.code, answer.remark) == (
        ResponseCode.INVALID_PARAMETER, "expected 1 to 255 queues, found 256 and 256",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "fields", "code", "remark"),
    [
        ({"DELAY": "3"}, {}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "does not support delays"),
        ({"TIMER_DELAY_SEC": "9"}, {}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "does not support delays"),
        ({"TRAN_MSG": "true", "PGROUP": "p"}, {"f": PREPARED}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no transact"),
        ({}, {"f": PREPARED}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "no transactions"),
        (
            {},
            {"b": "%RETRY%consumers"},
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "consumers send failed messages back instead",
        ),
        (
            {},
            {"b": "%DLQ%consumers"},
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "consumers send failed messages back instead",
        ),
        ({}, {"f": LZ4}, ResponseCode.MESSAGE_ILLEGAL, "expected a body that is not compressed, or with zlib"),
        ({}, {"h": 65_536}, ResponseCode.MESSAGE_ILLEGAL, "business_tag at byte 0: expected 0 to 65535, found 65536"),
        ({"KEYS": "k" * 256}, {}, ResponseCode.MESSAGE_ILLEGAL, "business_id at byte 0: expected at most 255 bytes"),
        ({}, {"a": "g" * 256}, ResponseCode.MESSAGE_ILLEGAL, "app at byte 0: expected at most 255 bytes"),
    ],
)
def test_messages_that_a_journal_cannot_store_are_refused_with_a_reason(
    peer: Peer, store: JmqStore, properties: dict[str, str], fields: dict[str, object], code: int, remark: str
) -> None:
    answer = peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": "U1"} | properties) | fields, b"body")
    assert answer.code == code
    assert answer.remark is not None
    assert remark in answer.remark
    assert store.log_end == 0


def test_the_limit_of_a_body_applies_to_its_stored_form(peer: Peer, store: JmqStore) -> None:
    fields = send_fields("orders", {"UNIQ_KEY": "U1"})
    assert peer.ask(SEND, fields, b"x" * 100_000).code == ResponseCode.SUCCESS
    noise = b"".join(zlib.crc32(bytes([number & 0xFF, number >> 8])).to_bytes(4, "big") for number in range(600))
    answer = peer.ask(SEND, fields, noise)
    assert (answer.code, store.max_offset("orders", 0)) == (ResponseCode.MESSAGE_ILLEGAL, 1)
    assert f"expected at most {OPTIONS.max_body_size_bytes} bytes in the form in which it is stored" in str(
        answer.remark
    )


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.END_TRANSACTION, {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0,
                                       "commitOrRollback": 8, "fromTransactionCheck": False, "msgId": "U1"}),
        (RequestCode.QUERY_MESSAGE, {"topic": "orders", "key": "order-1", "maxNum": 32, "beginTimestamp": 0,
                                     "endTimestamp": 1 << 60}),
    ],
)  # fmt: skip
def test_requests_for_features_that_jmq_lacks_are_refused(peer: Peer, code: int, fields: dict[str, object]) -> None:
    send(peer)
    answer = peer.ask(code, fields)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "a JMQ journal has no" in str(answer.remark)
