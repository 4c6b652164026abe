"""Tests of sends: stored messages, and refusals with their codes."""

from __future__ import annotations

from functools import partial

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.properties import serialize_properties
from commitlake.schemas.layouts.rocketmq.sysflag import INNER_BATCH, NEED_UNWRAP
from commitlake.schemas.layouts.rocketmq.timers import parse_timer_checkpoint
from commitlake.schemas.layouts.rocketmq.topics import SCHEDULE_TOPIC, TIMER_TOPIC
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.routes import PERM_READ
from tests.support.brokers import Peer, message_store, pull_fields, records, send_fields
from tests.support.message_stores import BORN_MS
from tests.support.small_stores import Clock

SEND = RequestCode.SEND_MESSAGE_V2
PROPERTIES = {"KEYS": "order-1", "UNIQ_KEY": "U1", "TAGS": "paid"}


def test_a_message_is_stored_and_its_position_returned(peer: Peer, dispatcher: Dispatcher) -> None:
    answer = peer.ask(SEND, send_fields("orders", PROPERTIES, e=2, h=7), b"body")
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    fields = dict(answer.ext_fields)
    place = parse_message_id(fields.pop("msgId"))
    assert fields == {
        "queueId": "2", "queueOffset": "0", "transactionId": "U1", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip
    stored = dispatcher.broker.store.get_at(place.physical_offset)
    assert stored is not None
    assert (stored.topic, stored.queue_id, stored.body, stored.flag, stored.born_timestamp) == (
        "orders", 2, b"body", 7, BORN_MS,
    )  # fmt: skip
    assert stored.properties == PROPERTIES | {
        "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip
    assert stored.born_host == peer.channel.peer


def test_a_send_of_the_first_version_has_named_fields(peer: Peer) -> None:
    fields = {
        "producerGroup": "producers", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
        "queueId": 1, "sysFlag": 0, "bornTimestamp": BORN_MS, "flag": 0, "properties": "", "reconsumeTimes": 0,
        "unitMode": False, "batch": False,
    }  # fmt: skip
    assert peer.ask(RequestCode.SEND_MESSAGE, fields, b"x").ext_fields["queueId"] == "1"


def test_a_new_topic_gets_the_requested_number_of_queues(peer: Peer, dispatcher: Dispatcher) -> None:
    peer.ask(SEND, send_fields("orders", d=3), b"x")
    config = dispatcher.broker.topics.find("orders")
    assert config is not None
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)


def test_a_message_without_a_unique_key_gets_one(peer: Peer, dispatcher: Dispatcher) -> None:
    first, second = (peer.ask(SEND, send_fields("orders"), b"x").ext_fields["transactionId"] for _ in range(2))
    assert len(first) == len(second) == 32
    assert first != second
    assert dispatcher.broker.store.get_by_key("orders", first)


def test_the_broker_chooses_the_queue_for_a_negative_queue_id(peer: Peer) -> None:
    assert int(peer.ask(SEND, send_fields("orders", e=-1), b"x").ext_fields["queueId"]) in range(4)


def test_a_one_way_request_gets_no_answer(peer: Peer, dispatcher: Dispatcher) -> None:
    assert peer.tell(SEND, send_fields("orders"), b"x") == []
    assert dispatcher.broker.store.max_offset("orders", 0) == 1
    assert peer.tell(SEND, send_fields("or/ders"), b"x") == []


@pytest.mark.parametrize(
    ("fields", "body", "code"),
    [
        (send_fields("or/ders"), b"", ResponseCode.INVALID_PARAMETER),
        (send_fields("x" * 128), b"", ResponseCode.INVALID_PARAMETER),
        (send_fields(SCHEDULE_TOPIC), b"", ResponseCode.NO_PERMISSION),
        (send_fields("orders", c="NoSuchModel"), b"", ResponseCode.TOPIC_NOT_EXIST),
        (send_fields("orders", e=4), b"", ResponseCode.INVALID_PARAMETER),
        (send_fields("orders"), b"x" * 2049, ResponseCode.MESSAGE_ILLEGAL),
        (send_fields("orders", {"DELAY": "soon"}), b"x", ResponseCode.MESSAGE_ILLEGAL),
        (send_fields("orders", f=1 << 40), b"x", ResponseCode.SYSTEM_ERROR),
        (send_fields("orders", e="one"), b"x", ResponseCode.SYSTEM_ERROR),
        ({}, b"x", ResponseCode.SYSTEM_ERROR),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused(
    peer: Peer, dispatcher: Dispatcher, fields: dict[str, object], body: bytes, code: int
) -> None:
    answer = peer.ask(SEND, fields, body)
    assert (answer.code, bool(answer.remark)) == (code, True)
    assert dispatcher.broker.store.log_end == 0


def test_a_send_to_a_read_only_topic_is_refused(peer: Peer, dispatcher: Dispatcher) -> None:
    config = dispatcher.broker.topics.find_or_create("orders", 1)
    dispatcher.broker.topics.put(config._replace(perm=PERM_READ))
    assert peer.ask(SEND, send_fields("orders"), b"x").code == ResponseCode.NO_PERMISSION


def test_a_full_disk_refuses_sends_but_not_reads(peer: Peer, dispatcher: Dispatcher) -> None:
    peer.ask(SEND, send_fields("orders"), b"x")
    dispatcher.broker.is_writable = False
    assert peer.ask(SEND, send_fields("orders"), b"x").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": 0}).ext_fields["offset"] == "1"


def test_messages_of_a_batch_have_consecutive_queue_offsets(peer: Peer, dispatcher: Dispatcher) -> None:
    items = [BatchItem(number, f"body {number}".encode(), f"UNIQ_KEY\x01U{number}".encode()) for number in range(3)]
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders", m=True), serialize_batch(items))
    ids = answer.ext_fields["msgId"].split(",")
    found = [dispatcher.broker.store.get_by_id(one) for one in ids]
    assert [(one.body, one.flag, one.queue_offset, one.properties) for one in found if one] == [
        (f"body {number}".encode(), number, number, {"UNIQ_KEY": f"U{number}"}) for number in range(3)
    ]


def test_a_batch_for_a_topic_of_batches_is_one_record(peer: Peer, dispatcher: Dispatcher) -> None:
    dispatcher.broker.store.config.topics.create_batch_topic("batched", 1)
    body = serialize_batch([BatchItem(0, b"one", b"UNIQ_KEY\x01U1"), BatchItem(0, b"two", b"UNIQ_KEY\x01U2")])
    ask = partial(peer.ask, RequestCode.SEND_BATCH_MESSAGE)
    first, second = (ask(send_fields("batched", {"UNIQ_KEY": key}, m=True), body) for key in ("B1", "B2"))
    old = ask(send_fields("batched", m=True), body)  # from a client that gives the batch no unique key
    assert [answer.ext_fields["queueOffset"] for answer in (first, second, old)] == ["0", "2", "4"]
    assert [answer.ext_fields.get("batchUniqId") for answer in (first, second, old)] == ["B1", "B2", None]
    found = records(peer.ask(RequestCode.PULL_MESSAGE, pull_fields("batched")).body)
    assert [(one.queue_offset, one.body == body) for one in found] == [(0, True), (2, True), (4, False), (5, False)]
    assert found[1].sys_flag & (INNER_BATCH | NEED_UNWRAP) == INNER_BATCH | NEED_UNWRAP
    assert found[1].properties.items() >= {"UNIQ_KEY": "B2", "INNER_NUM": "2", "INNER_BASE": "2"}.items()
    answer = peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "consumers", "offset": 0, "delayLevel": 0})
    assert answer.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize(("sys_flag", "properties"), [(INNER_BATCH, {}), (0, {"INNER_NUM": "2"})])
def test_an_inner_batch_from_a_producer_is_refused(
    peer: Peer, dispatcher: Dispatcher, sys_flag: int, properties: dict[str, str]
) -> None:
    for topic in ("orders", "batched"):
        dispatcher.broker.store.config.topics.create_batch_topic("batched", 1)
        assert peer.ask(SEND, send_fields(topic, properties, f=sys_flag), b"x").code == ResponseCode.MESSAGE_ILLEGAL
        body = serialize_batch([BatchItem(0, b"x", serialize_properties(properties.items()))])
        answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields(topic, f=sys_flag, m=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert dispatcher.broker.store.max_offset(topic, 0) == 0


@pytest.mark.parametrize("later", [{"DELAY": "2"}, {"TIMER_DELAY_SEC": "3"}, {"TRAN_MSG": "true", "PGROUP": "g"}])
def test_a_batch_with_a_delay_or_a_transaction_is_refused(
    peer: Peer, dispatcher: Dispatcher, later: dict[str, str]
) -> None:
    body = serialize_batch([BatchItem(0, b"one", b"")])
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders", later, m=True), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert dispatcher.broker.store.max_offset("orders", 0) == 0


def test_a_send_to_a_missing_dead_letter_topic_is_refused(peer: Peer, dispatcher: Dispatcher) -> None:
    fields = send_fields("%DLQ%consumers", {"UNIQ_KEY": "U"}, c="nothing")
    assert peer.ask(SEND, fields, b"x").code == ResponseCode.TOPIC_NOT_EXIST
    assert dispatcher.broker.topics.find("%DLQ%consumers") is None


@pytest.mark.parametrize("body", [b"", b"no batch at all, but text", serialize_batch([BatchItem(0, b"x" * 2049, b"")])])
def test_an_invalid_batch_is_refused(peer: Peer, body: bytes) -> None:
    answer = peer.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders", m=True), body)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_delayed_message_is_delivered_at_its_time(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    answer = peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": "U1", "DELAY": "2"}, e=1), b"late")
    assert answer.ext_fields["queueId"] == "1"
    store = message_store(dispatcher)
    assert (store.max_offset(SCHEDULE_TOPIC, 1), store.max_offset("orders", 1)) == (1, 0)
    clock.now_ms += 5_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert store.get("orders", 1, 0).messages[0].body == b"late"


@pytest.mark.parametrize(
    ("name", "value", "is_absolute"),
    [("TIMER_DELAY_SEC", 3, False), ("TIMER_DELAY_MS", 2500, False), ("TIMER_DELIVER_MS", 2500, True)],
)
def test_a_timer_message_is_delivered_when_its_second_is_over(
    peer: Peer, dispatcher: Dispatcher, clock: Clock, name: str, value: int, is_absolute: bool
) -> None:
    start = clock.now_ms
    text = str(start + value) if is_absolute else str(value)
    peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": "U1", name: text}), b"timed")
    store = message_store(dispatcher)
    parked = store.get(TIMER_TOPIC, 0, 0).messages[0]
    due = int(parked.properties["TIMER_OUT_MS"])
    assert due % 1000 == 0
    assert start + 1_000 <= due <= start + 3_000
    clock.now_ms = due + 999  # still in the second of the requested time
    dispatcher.run_periodic_work(clock.now_ms)
    assert store.max_offset("orders", 0) == 0
    clock.now_ms = due + 1000
    dispatcher.run_periodic_work(clock.now_ms)
    assert clock.now_ms >= start + value
    (delivered,) = store.get("orders", 0, 0).messages
    assert delivered.body == b"timed"
    assert {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "REAL_TOPIC"} <= delivered.properties.keys()


def test_a_slave_receives_the_progress_of_the_timers(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    for number, seconds in enumerate((3, 60)):
        peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": f"U{number}", "TIMER_DELAY_SEC": str(seconds)}), b"timed")
    clock.now_ms += 10_000
    dispatcher.run_periodic_work(clock.now_ms)
    found = parse_timer_checkpoint(bytes(peer.ask(RequestCode.GET_TIMER_CHECK_POINT).body))
    assert (found.last_timer_queue_offset, found.master_timer_queue_offset) == (2, 2)
    assert clock.now_ms - 10_000 < found.last_read_time_ms < clock.now_ms


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", ["0", "-5", "+0"])
def test_a_timer_message_whose_time_has_passed_is_delivered_immediately(
    peer: Peer, dispatcher: Dispatcher, name: str, value: str
) -> None:
    assert peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": "U", name: value}), b"x").code == ResponseCode.SUCCESS
    assert dispatcher.broker.store.max_offset("orders", 0) == 1


@pytest.mark.parametrize("value", ["soon", "-", "", "1.5", "9" * 30])
def test_a_timer_without_a_number_is_refused(peer: Peer, value: str) -> None:
    # Without a value there is no property.
    expected = ResponseCode.MESSAGE_ILLEGAL if value else ResponseCode.SUCCESS
    assert peer.ask(SEND, send_fields("orders", {"UNIQ_KEY": "U", "TIMER_DELAY_MS": value}), b"x").code == expected


def test_a_timer_too_far_in_the_future_is_refused(peer: Peer) -> None:
    answer = peer.ask(SEND, send_fields("orders", {"TIMER_DELAY_SEC": str(4 * 86_400)}), b"x")
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_a_retry_that_a_consumer_sends_itself_finally_becomes_a_dead_letter(peer: Peer, dispatcher: Dispatcher) -> None:
    for times, topic in ((1, "%RETRY%consumers"), (3, "%DLQ%consumers")):
        fields = send_fields("%RETRY%consumers", {"UNIQ_KEY": f"U{times}"}, j=times, l=2)
        assert peer.ask(SEND, fields, b"x").code == ResponseCode.SUCCESS
        assert dispatcher.broker.store.get_by_key(topic, f"U{times}")
