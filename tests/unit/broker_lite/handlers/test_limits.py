"""Tests of limits on the state that clients may create: a request is checked completely before it has any effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.broker_lite.broker.limits import Quotas
from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.fastjson import serialize_compact
from commitlake.schemas.remoting.heartbeats import (
    ConsumerData,
    Heartbeat,
    LockBatch,
    LockBatchResult,
    ProducerData,
    SubscriptionData,
)
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body, to_json
from commitlake.schemas.remoting.routes import MessageQueue
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers import Peer, open_broker, pull_fields, send_fields
from tests.support.small_stores import Clock

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def small(root: Path, clock: Clock) -> Iterator[Dispatcher]:
    """A broker with room for 3 more topics, and for 2 groups."""
    opened = open_broker(root, clock, BrokerOptions(max_topics=14, max_groups=2))
    with opened.broker.store:
        assert len(opened.broker.topics.all_configs().topic_config_table) == 11
        yield opened


def state(dispatcher: Dispatcher) -> tuple[object, ...]:
    """Return the state that a broker keeps."""
    broker, config = dispatcher.broker, dispatcher.broker.store.config
    return (
        sorted(config.topics.entries), sorted(config.groups.entries), sorted(config.consumer_offsets.entries),
        broker.store.log_end, sorted(broker.clients.producers), sorted(broker.clients.consumers),
        broker.locks._count, len(broker.held),
    )  # fmt: skip


def heartbeat(*groups: str, client_id: str = "c1", producers: tuple[str, ...] = (), **data: object) -> bytes:
    """Return a heartbeat's body."""
    consumers = tuple(ConsumerData(group, **data) for group in groups)  # type: ignore[arg-type]
    return serialize_body(Heartbeat(client_id, tuple(map(ProducerData, producers)), consumers))


def subscribed(**fields: object) -> dict[str, Any]:
    """Return the subscription of a consumer."""
    return {"subscription_data_set": (SubscriptionData(**{"topic": "orders", **fields}),)}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        heartbeat(*(f"g{number}" for number in range(4097))),
        heartbeat(producers=tuple(f"p{number}" for number in range(4097))),
        heartbeat("g", producers=("p" * 256,)),
        heartbeat("g", client_id="c" * 256),
        heartbeat("g", consume_type="x" * 65),
        heartbeat("g", **subscribed(topic="t" * 256)),
        heartbeat("g", **subscribed(sub_string="x" * 16_385)),
        heartbeat("g", **subscribed(expression_type="x" * 65)),
        heartbeat("g", **subscribed(code_set=tuple(range(5462)))),
        heartbeat("g", **subscribed(tags_set=("x" * 16_385,))),
        heartbeat("g", subscription_data_set=tuple(SubscriptionData(f"t{number}") for number in range(1025))),
        heartbeat("g").ljust((512 << 10) + 1),
    ],
)
def test_a_heartbeat_above_a_limit_has_no_effect(peer: Peer, dispatcher: Dispatcher, body: bytes) -> None:
    before = state(dispatcher)
    answer = peer.ask(RequestCode.HEART_BEAT, {}, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert re.search("expected (a filter of )?at most", str(answer.remark))
    assert state(dispatcher) == before


def test_a_heartbeat_that_exceeds_the_number_of_groups_or_topics_has_no_effect(small: Dispatcher) -> None:
    peer, before = Peer(small), state(small)
    answer = peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", "g2", "g3"))
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR, "groups (see --max-groups): expected at most 2, found 3",
    )  # fmt: skip
    assert state(small) == before
    for number in range(2):
        assert peer.ask(SEND, send_fields(f"orders{number}"), b"x").code == ResponseCode.SUCCESS
    before = state(small)
    answer = peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", "g2"))
    assert answer.remark == "topics (see --max-topics): expected at most 14, found 15"
    assert state(small) == before
    assert peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1")).code == ResponseCode.SUCCESS
    assert peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", client_id="c2")).code == ResponseCode.SUCCESS


def test_clients_of_one_connection_have_a_limit(peer: Peer) -> None:
    for number in range(256):
        body = heartbeat(producers=("p",), client_id=f"c{number}")
        assert peer.ask(RequestCode.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
    answer = peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(producers=("p",), client_id="one more"))
    assert answer.remark == "clients on one connection: expected at most 256, found 257"


def test_quotas_are_shared_by_address_and_released(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = dispatcher.broker.clients
    monkeypatch.setattr(clients, "_quotas", Quotas(of_one=10, of_address=3, in_all=5))
    neighbour, stranger = Peer(dispatcher), Peer(dispatcher)
    stranger.channel.peer = Host.of("10.0.0.9", 1)
    assert peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", producers=("p",))).code == ResponseCode.SUCCESS
    answer = neighbour.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", "g2", client_id="c2"))
    assert "too many groups and clients" in str(answer.remark)
    assert stranger.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", "g2", client_id="c3")).code == ResponseCode.SUCCESS
    dispatcher.on_connection_lost(peer.channel)
    assert neighbour.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", "g2", client_id="c2")).code == ResponseCode.SUCCESS
    for one in (neighbour, stranger):
        dispatcher.on_connection_lost(one.channel)
    assert (clients._quotas.total, clients._subscriptions_size) == (0, 0)


def test_all_subscriptions_together_have_a_limit(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.broker.clients.MAX_SUBSCRIPTION_CHARACTERS", 1000)
    long = subscribed(sub_string="x" * 600)
    assert peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", **long)).code == ResponseCode.SUCCESS
    assert peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g1", **long)).code == ResponseCode.SUCCESS
    answer = peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("g2", **long))
    assert "characters of all subscriptions: expected at most 1000" in str(answer.remark)
    dispatcher.on_connection_lost(peer.channel)
    assert Peer(dispatcher).ask(RequestCode.HEART_BEAT, {}, heartbeat("g2", **long)).code == ResponseCode.SUCCESS


def batch(count: int, body: bytes = b"x") -> bytes:
    """Return a batch's body."""
    return serialize_batch([BatchItem(0, body, b"")] * count)


@pytest.mark.parametrize(
    ("code", "fields", "body", "answer"),
    [
        (SEND, send_fields("new"), b"x" * 2049, ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("new", {"K": "x" * 32_768}), b"x", ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("new", {"TIMER_DELAY_SEC": "999999999"}), b"x", ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("new", {"TRAN_MSG": "true", "UNIQ_KEY": "U"}), b"x", ResponseCode.SYSTEM_ERROR),
        (SEND, send_fields("new", e=4), b"x", ResponseCode.INVALID_PARAMETER),
        (SEND, send_fields("new", m=True), b"", ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("new", m=True), b"x" * 30, ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("new", m=True), batch(3, b"x" * 1000), ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("new", m=True), batch(4097, b""), ResponseCode.MESSAGE_ILLEGAL),
        (SEND, send_fields("%RETRY%new", m=True), batch(1), ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_a_refused_send_creates_no_topic_or_group(
    peer: Peer, dispatcher: Dispatcher, code: int, fields: dict[str, object], body: bytes, answer: int
) -> None:
    before = state(dispatcher)
    assert peer.ask(code, fields, body).code == answer
    assert state(dispatcher) == before


def test_without_auto_create_retries_create_no_topics_or_groups(root: Path, clock: Clock) -> None:
    dispatcher = open_broker(root, clock, BrokerOptions(auto_create_topics=False, auto_create_groups=False))
    with dispatcher.broker.store:
        peer, before = Peer(dispatcher), state(dispatcher)
        for fields, body in ((send_fields("%RETRY%new"), b"x"), (send_fields("%RETRY%new", m=True), batch(1))):
            answer = peer.ask(SEND, fields, body)
            assert answer.code in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.MESSAGE_ILLEGAL)
        peer.ask(RequestCode.HEART_BEAT, {}, heartbeat("new"))
        back = {"offset": 0, "group": "new", "delayLevel": 0}
        assert peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        pulled = peer.ask(RequestCode.PULL_MESSAGE, pull_fields("%RETRY%new", consumerGroup="new"))
        assert pulled.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert state(dispatcher) == before


def test_the_numbers_of_topics_and_groups_have_a_limit(small: Dispatcher) -> None:
    peer = Peer(small)
    assert [peer.ask(SEND, send_fields(f"orders{number}"), b"x").code for number in range(4)] == [0, 0, 0, 1]
    create = {"topic": "wanted", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
    assert answer.remark == "topics (see --max-topics): expected at most 14, found 15"
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, create | {"topic": "orders0"}).code == ResponseCode.SUCCESS
    configs = [to_json(TopicConfig(name, 1, 1)) for name in ("orders1", "orders1", "wanted")]
    body = serialize_compact({"topicConfigList": configs})
    before = state(small)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).code == ResponseCode.SYSTEM_ERROR
    assert state(small) == before
    for name, code in (("g1", 0), ("g2", 0), ("g3", 1), ("g1", 0)):
        config = serialize_body(SubscriptionGroupConfig(name))
        assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config).code == code


def test_locks_have_limits_and_are_acquired_all_or_none(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lock(count: int, group: str = "g", client: str = "c", name: str = "b") -> tuple[int, int]:
        queues = tuple(MessageQueue("orders", name, number) for number in range(count))
        answer = peer.ask(RequestCode.LOCK_BATCH_MQ, {}, serialize_body(LockBatch(group, client, queues)))
        held = parse_body(LockBatchResult, answer.body).lock_ok_mq_set if answer.body else ()
        return answer.code, len(held)

    before = state(dispatcher)
    assert lock(2049) == (ResponseCode.SYSTEM_ERROR, 0)
    assert lock(1, name="x" * 256) == (ResponseCode.SYSTEM_ERROR, 0)
    assert lock(1, group="x" * 256) == (ResponseCode.SYSTEM_ERROR, 0)
    monkeypatch.setattr("commitlake.broker_lite.broker.groups.MAX_LOCKS", 10)
    assert lock(11) == (ResponseCode.SYSTEM_ERROR, 0)
    assert state(dispatcher) == before
    assert lock(8) == (ResponseCode.SUCCESS, 8)
    assert lock(8, client="other") == (ResponseCode.SUCCESS, 0)
    assert lock(3, group="h") == (ResponseCode.SYSTEM_ERROR, 0)
    assert lock(2, group="h") == (ResponseCode.SUCCESS, 2)
    queues = tuple(MessageQueue("orders", "b", number) for number in range(8))
    peer.ask(RequestCode.UNLOCK_BATCH_MQ, {}, serialize_body(LockBatch("g", "c", queues)))
    assert dispatcher.broker.locks._count == 2
    dispatcher.broker.locks.remove_expired_locks(1 << 50)
    assert dispatcher.broker.locks._count == 0


def test_offsets_have_a_limit(peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.broker.broker.MAX_OFFSETS", 2)
    monkeypatch.setattr("commitlake.broker_lite.handlers.group_administration.MAX_OFFSETS", 2)
    monkeypatch.setattr("commitlake.broker_lite.handlers.consume_progress.MAX_OFFSETS", 2)
    peer.ask(SEND, send_fields("orders"), b"x")
    peer.heartbeat("c", "g", "orders")
    fields = {"consumerGroup": "g", "topic": "orders", "commitOffset": 1}
    codes = [peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields | {"queueId": queue}).code for queue in (0, 1, 2, 1)]
    assert codes == [0, 0, 1, 0]
    before = state(dispatcher)
    clone = {"srcGroup": "g", "destGroup": "h", "topic": "orders"}
    assert peer.ask(RequestCode.CLONE_GROUP_OFFSET, clone).code == ResponseCode.SYSTEM_ERROR
    reset = {"topic": "orders", "group": "g", "timestamp": -1, "isForce": True}
    assert peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset).code == ResponseCode.SYSTEM_ERROR
    waits = pull_fields("orders", 3, 0, consumerGroup="g", sysFlag=7, commitOffset=1)
    assert peer.ask(RequestCode.PULL_MESSAGE, waits).code == ResponseCode.SYSTEM_ERROR
    assert state(dispatcher) == before
    dispatcher.broker.store.config.consumer_offsets.remove_if(lambda topic, _: topic == "orders")
    assert dispatcher.broker.store.config.consumer_offsets.count == 0


def test_a_reset_moves_all_queues_or_none(peer: Peer, dispatcher: Dispatcher) -> None:
    for queue_id in (0, 0, 1):
        peer.ask(SEND, send_fields("orders", e=queue_id), b"x")
    peer.heartbeat("c", "g", "orders")
    fields = {"topic": "orders", "group": "g", "timestamp": 0, "isForce": True, "offset": 2}
    assert peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields).code == ResponseCode.SYSTEM_ERROR
    assert not dispatcher.broker.store.config.consumer_offsets.entries


def test_requests_that_are_forwarded_to_a_client_have_a_size_limit(peer: Peer, dispatcher: Dispatcher) -> None:
    peer.heartbeat("c", "g", "orders")
    before = len(peer.sent)
    for code, fields in (
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "g", "clientId": "c"}),
        (RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {"topic": "orders", "group": "g"}),
    ):
        assert Peer(dispatcher).ask(code, fields, b"x" * 65_537).code == ResponseCode.SYSTEM_ERROR
        assert Peer(dispatcher).ask(code, fields | {"more": "x" * 65_537}).code == ResponseCode.SYSTEM_ERROR
    reply = send_fields("orders", {"REPLY_TO_CLIENT": "p"})
    peer.ask(RequestCode.HEART_BEAT, {}, heartbeat(producers=("q",), client_id="p"))
    before = len(peer.sent)
    assert Peer(dispatcher).ask(RequestCode.SEND_REPLY_MESSAGE_V2, reply, b"x" * 2049).code == ResponseCode.SYSTEM_ERROR
    assert len(peer.sent) == before
