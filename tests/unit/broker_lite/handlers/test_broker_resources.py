"""Protection of the broker's own topics, and of the offsets of its own groups, from clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.schemas.layouts.rocketmq.topics import (
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRACE_TOPIC_PREFIX,
)
from commitlake.schemas.remoting.batch import BatchItem, serialize_batch
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.topic_and_group_configs import SubscriptionGroupConfig
from tests.support.brokers import Peer, open_broker, pull_fields, send_fields
from tests.support.small_stores import Clock

SEND = RequestCode.SEND_MESSAGE_V2
TIMER_GROUP, TRANSACTION_GROUP = "CID_RMQ_SYS_TIMER", "CID_RMQ_SYS_TRANS"
FORGED = {"REAL_TOPIC": OP_TOPIC, "REAL_QID": "0", "TIMER_OUT_MS": "1"}
BROKER_TOPICS = [
    TIMER_TOPIC, "rmq_sys_REVIVE_LOG_DefaultCluster", "rmq_sys_anything", SCHEDULE_TOPIC, HALF_TOPIC, OP_TOPIC,
    GIVEN_UP_TOPIC, "CHECKPOINT_TOPIC",
]  # fmt: skip


@pytest.mark.parametrize("topic", BROKER_TOPICS)
@pytest.mark.parametrize("properties", [FORGED, FORGED | {"TIMER_DELAY_SEC": "9"}, FORGED | {"DELAY": "1"}])
def test_clients_cannot_send_to_a_topic_of_the_broker(
    peer: Peer, dispatcher: Dispatcher, topic: str, properties: dict[str, str]
) -> None:
    batch = serialize_batch([BatchItem(0, b"x", "".join(f"{k}\x01{v}\x02" for k, v in properties.items()).encode())])
    for code, fields, body in (
        (SEND, send_fields(topic, properties), b"x"),
        (SEND, send_fields(topic, m=True), batch),
        (RequestCode.SEND_BATCH_MESSAGE, send_fields(topic), batch),
    ):
        answer = peer.ask(code, fields, body)
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.",
        )  # fmt: skip
    assert dispatcher.broker.store.log_end == 0


@pytest.mark.parametrize("topic", [TRACE_TOPIC, f"{TRACE_TOPIC_PREFIX}DefaultRegion"])
def test_clients_may_send_their_traces(peer: Peer, topic: str) -> None:
    assert peer.ask(SEND, send_fields(topic), b"x").code == ResponseCode.SUCCESS


@pytest.mark.parametrize("topic", BROKER_TOPICS)
def test_no_client_creates_or_deletes_a_topic_of_the_broker(peer: Peer, dispatcher: Dispatcher, topic: str) -> None:
    before = dispatcher.broker.topics.change_count
    fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
              "topicFilterType": "SINGLE_TAG", "order": False}  # fmt: skip
    for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER):
        answer = peer.ask(code, fields)
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == f"The topic[{topic}] is conflict with system topic."
    assert dispatcher.broker.topics.change_count == before


def test_properties_of_a_message_cannot_change_its_target(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    for extra in ({"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}):
        assert peer.ask(SEND, send_fields("orders", FORGED | extra), b"x").code == ResponseCode.SUCCESS
    clock.now_ms += 10_000
    dispatcher.run_periodic_work(clock.now_ms)
    store = dispatcher.broker.store
    assert (store.max_offset("orders", 0), store.max_offset(OP_TOPIC, 0)) == (2, 0)


@pytest.mark.parametrize(("group", "topic"), [(TIMER_GROUP, TIMER_TOPIC), (TRANSACTION_GROUP, HALF_TOPIC)])
def test_no_request_sets_the_progress_of_the_broker(root: Path, clock: Clock, group: str, topic: str) -> None:
    dispatcher = open_broker(root, clock)
    broker = dispatcher.broker
    with broker.store:
        peer = Peer(dispatcher)
        peer.ask(SEND, send_fields("orders", {"TIMER_DELAY_SEC": "60"}), b"timed")
        peer.ask(SEND, send_fields("orders", {"TRAN_MSG": "true", "PGROUP": "shop"}), b"half")
        peer.ask(SEND, send_fields("orders"), b"plain")
        # The stores of RocketMQ's brokers have the group.
        broker.store.config.groups.create(group)
        broker.store.config.consumer_offsets.commit(topic, "attackers", 0, 1)
        update = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 1}
        reset = {"topic": topic, "group": group, "timestamp": -1, "isForce": True}
        clone = {"srcGroup": "attackers", "destGroup": group, "topic": topic}
        delete = {"groupName": group, "cleanOffset": True}
        config = serialize_body(SubscriptionGroupConfig(group))
        before = broker.store.config.consumer_offsets.get(topic, group, 0)
        for code, fields, body in (
            (RequestCode.UPDATE_CONSUMER_OFFSET, update, b""),
            (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset, b""),
            (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset | {"queueId": 0, "offset": 1}, b""),
            (RequestCode.CLONE_GROUP_OFFSET, clone, b""),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, delete, b""),
            (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config),
        ):
            answer = peer.ask(code, fields, body)
            assert (answer.code, answer.remark) == (
                ResponseCode.NO_PERMISSION, f"the group[{group}] belongs to the broker, clients may not change it",
            ), code  # fmt: skip
        commit = pull_fields(topic, 0, 5, consumerGroup=group, sysFlag=7, commitOffset=5)
        peer.ask(RequestCode.PULL_MESSAGE, commit)
        peer.tell(RequestCode.UPDATE_CONSUMER_OFFSET, update)
        assert broker.store.config.consumer_offsets.get(topic, group, 0) == before
    again = open_broker(root, clock)
    with again.broker.store:
        assert again.broker.delivery.next_due_ms() is not None
        assert len(list(again.broker.delivery.take_due_half_messages(clock.now_ms + 10_000, 1, 9))) == 1


def test_clients_cannot_create_a_group_of_the_broker(peer: Peer, dispatcher: Dispatcher) -> None:
    peer.heartbeat("c1", TIMER_GROUP, TIMER_TOPIC)
    answer = peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": TIMER_GROUP, "delayLevel": 0})
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert not dispatcher.broker.groups.has(TIMER_GROUP)
    assert dispatcher.broker.topics.find(f"%RETRY%{TIMER_GROUP}") is None


def test_offsets_are_not_cloned_to_a_group_without_a_valid_name(peer: Peer, dispatcher: Dispatcher) -> None:
    dispatcher.broker.store.config.consumer_offsets.commit("orders", "g", 0, 1)
    answer = peer.ask(RequestCode.CLONE_GROUP_OFFSET, {"srcGroup": "g", "destGroup": "a@b/c", "topic": "orders"})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert list(dispatcher.broker.store.config.consumer_offsets.entries) == ["orders@g"]


@pytest.mark.parametrize("queues", [-1, 1025, 2_147_483_647])
def test_retry_queues_of_a_group_are_limited_as_queues_of_a_topic(
    peer: Peer, dispatcher: Dispatcher, queues: int
) -> None:
    body = serialize_body(SubscriptionGroupConfig("g", retry_queue_nums=queues))
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == ResponseCode.INVALID_PARAMETER
    assert not dispatcher.broker.groups.has("g")


def test_a_retry_is_stored_in_an_existing_queue_of_its_topic(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    for _ in range(4):
        answer = peer.ask(SEND, send_fields("orders"), b"x")
    peer.heartbeat("c1", "g", "orders")
    peer.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        {},
        serialize_body(SubscriptionGroupConfig("g", retry_queue_nums=8)),
    )
    offsets = [dispatcher.broker.store.entry_at("orders", 0, number) for number in range(4)]
    for entry in offsets:
        assert entry is not None
        fields = {"offset": entry.physical_offset, "group": "g", "delayLevel": 1}
        assert peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == ResponseCode.SUCCESS
    clock.now_ms += 10_000
    dispatcher.run_periodic_work(clock.now_ms)
    config = dispatcher.broker.topics.find("%RETRY%g")
    assert config is not None
    assert (config.read_queue_nums, dispatcher.broker.store.max_offset("%RETRY%g", 0)) == (1, 4)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("queues", [2_147_483_648, 2_147_483_647, 65_537, -1])
def test_a_topic_with_impossible_settings_is_skipped_and_others_are_registered(
    root: Path, clock: Clock, queues: int
) -> None:
    dispatcher = open_broker(root, clock)
    with dispatcher.broker.store as store:
        Peer(dispatcher).ask(SEND, send_fields("orders"), b"x")
        store.config.topics.create("damaged", queues)
        store.config.groups.create("broken", retry_queue_count=1 << 40)
    again = open_broker(root, clock)
    with again.broker.store:
        peer = Peer(again)
        topics = again.broker.topics.all_configs().topic_config_table
        assert "orders" in topics
        assert "damaged" not in topics
        assert peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "damaged"}).code == ResponseCode.TOPIC_NOT_EXIST
        assert peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).code == ResponseCode.SUCCESS
