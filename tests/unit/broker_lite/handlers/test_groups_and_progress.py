"""Tests of members, locks, offsets, retries, and administration of groups and topics."""

from __future__ import annotations

import json

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.heartbeats import (
    ConsumerConnection,
    ConsumerList,
    Heartbeat,
    LockBatch,
    LockBatchResult,
    ProducerData,
)
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body
from commitlake.schemas.remoting.routes import KvTable, MessageQueue, TopicList
from commitlake.schemas.remoting.statistics_bodies import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeTimeSpans,
    GroupList,
    TopicStats,
)
from commitlake.schemas.remoting.topic_and_group_configs import (
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfig,
    TopicConfigs,
)
from tests.support.brokers import Peer, pull_fields, records, send_fields
from tests.support.small_stores import STORED_MS, Clock

GROUP = {"consumerGroup": "consumers"}
QUEUE = {"topic": "orders", "queueId": 0}


def send(peer: Peer, count: int = 1) -> None:
    """Send messages to one queue."""
    for number in range(count):
        fields = send_fields("orders", {"UNIQ_KEY": f"U{number}", "KEYS": f"order-{number}"})
        assert peer.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x").code == 0


def members(peer: Peer) -> tuple[str, ...]:
    """Return the members of the group."""
    answer = peer.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GROUP)
    return parse_body(ConsumerList, answer.body).consumer_id_list if answer.code == 0 else ()


def test_members_are_notified_when_others_join_or_leave(peer: Peer, dispatcher: Dispatcher) -> None:
    other = Peer(dispatcher)
    assert members(peer) == ()
    peer.heartbeat("one", "consumers", "orders")
    # The new member receives the notification before the answer to its heartbeat.
    assert [command.code for command in peer.sent[-2:]] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0]
    assert dispatcher.broker.topics.find("%RETRY%consumers") is not None
    other.heartbeat("two", "consumers", "orders")
    assert peer.sent[-1].code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert members(peer) == ("one", "two")
    before = len(peer.sent)
    peer.heartbeat("one", "consumers", "orders")
    assert len(peer.sent) == before + 1
    other.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", **GROUP})
    assert members(peer) == ("one",)
    peer.channel.on_connection_lost()
    dispatcher.on_connection_lost(peer.channel)
    assert members(other) == ()


def test_a_connection_with_several_members_of_a_group_is_notified_once(peer: Peer, dispatcher: Dispatcher) -> None:
    for number in range(3):
        peer.heartbeat(f"client{number}", "consumers", "orders")
    peer.sent.clear()
    Peer(dispatcher).heartbeat("other", "consumers", "orders")
    assert [command.code for command in peer.sent] == [RequestCode.NOTIFY_CONSUMER_IDS_CHANGED]


def test_a_silent_member_is_dropped(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    peer.heartbeat("one", "consumers", "orders")
    clock.now_ms += 119_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert members(peer) == ("one",)
    clock.now_ms += 2_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert members(peer) == ()


def test_a_queue_is_locked_by_one_client(peer: Peer, clock: Clock) -> None:
    queues = tuple(MessageQueue("orders", "broker-a", number) for number in range(2))

    def lock(client_id: str, code: int = RequestCode.LOCK_BATCH_MQ) -> tuple[MessageQueue, ...]:
        body = serialize_body(LockBatch("consumers", client_id, queues))
        answer = peer.ask(code, body=body)
        return parse_body(LockBatchResult, answer.body).lock_ok_mq_set if answer.body else ()

    assert lock("one") == queues
    assert lock("two") == ()
    lock("two", RequestCode.UNLOCK_BATCH_MQ)
    assert lock("two") == ()
    lock("one", RequestCode.UNLOCK_BATCH_MQ)
    assert lock("two") == queues
    clock.now_ms += 60_001
    assert lock("one") == queues


def test_offsets_of_queues_and_groups_are_returned(peer: Peer, clock: Clock) -> None:
    send(peer, 3)

    def offset(code: int, fields: dict[str, object]) -> int | None:
        answer = peer.ask(code, fields)
        return int(answer.ext_fields["offset"]) if answer.code == 0 else None

    assert offset(RequestCode.GET_MIN_OFFSET, QUEUE) == 0
    assert offset(RequestCode.GET_MAX_OFFSET, QUEUE) == 3
    assert offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, QUEUE | {"timestamp": STORED_MS}) == 0
    assert offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, QUEUE | {"timestamp": STORED_MS + 1}) == 3
    assert (
        offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, QUEUE | {"timestamp": STORED_MS, "boundaryType": "UPPER"}) == 3
    )
    # A new group begins at offset 0 while that is in memory, unless setZeroIfNotFound is false.
    assert offset(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE | GROUP) == 0
    assert offset(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE | GROUP | {"setZeroIfNotFound": False}) is None
    assert offset(RequestCode.QUERY_CONSUMER_OFFSET, GROUP | {"topic": "orders", "queueId": 3}) is None
    peer.heartbeat("client", "consumers", "orders")
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, QUEUE | GROUP | {"commitOffset": 2}).code == 0
    assert offset(RequestCode.QUERY_CONSUMER_OFFSET, QUEUE | GROUP) == 2
    unknown = GROUP | {"topic": "nothing", "queueId": 0, "commitOffset": 2}
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, unknown).code == ResponseCode.TOPIC_NOT_EXIST
    earliest = peer.ask(RequestCode.GET_EARLIEST_MSG_STORETIME, QUEUE)
    assert earliest.ext_fields["timestamp"] == str(STORED_MS)


def test_a_failed_message_is_retried_and_becomes_a_dead_letter(
    peer: Peer, dispatcher: Dispatcher, clock: Clock
) -> None:
    send(peer)
    peer.heartbeat("one", "consumers", "orders")
    offset, topic = 0, "orders"
    for times in range(3):
        (failed,) = records(peer.ask(RequestCode.PULL_MESSAGE, pull_fields(topic, offset=offset)).body)
        fields = {"offset": failed.physical_offset, "group": "consumers", "delayLevel": 0, "maxReconsumeTimes": 2}
        assert peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == ResponseCode.SUCCESS
        clock.now_ms += 3_600_000
        dispatcher.run_periodic_work(clock.now_ms)
        # The first record of the retry topic, then its second.
        topic, offset = "%RETRY%consumers", times
    (dead,) = records(peer.ask(RequestCode.PULL_MESSAGE, pull_fields("%DLQ%consumers")).body)
    assert dead.reconsume_times == 3
    lost = {"offset": 1, "group": "consumers", "delayLevel": 0}
    assert peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, lost).code == ResponseCode.SYSTEM_ERROR


def test_messages_are_found_by_key_position_and_queue_offset(peer: Peer) -> None:
    send(peer, 3)
    found = peer.ask(
        RequestCode.QUERY_MESSAGE,
        {"topic": "orders", "key": "order-1", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 62},
    )
    (record,) = records(found.body)
    assert record.keys == ["order-1"]
    viewed = peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": record.physical_offset})
    assert records(viewed.body) == [record]
    assert peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 13}).code == ResponseCode.SYSTEM_ERROR
    nothing = {"topic": "orders", "key": "none", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    assert peer.ask(RequestCode.QUERY_MESSAGE, nothing).code == ResponseCode.QUERY_NOT_FOUND
    entries = json.loads(bytes(peer.ask(RequestCode.QUERY_CONSUME_QUEUE, QUEUE | {"index": 1, "count": 5}).body))
    assert entries["queueData"][0]["physicOffset"] == record.physical_offset
    assert (entries["minQueueIndex"], entries["maxQueueIndex"]) == (0, 3)


def test_topics_are_created_changed_and_deleted(peer: Peer, dispatcher: Dispatcher) -> None:
    def make(topic: str, **changes: object) -> int:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 2, "writeQueueNums": 3, "perm": 6,
                  "topicFilterType": "SINGLE_TAG", "order": True}  # fmt: skip
        return peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields | changes).code

    assert make("made", attributes="+message.type=NORMAL") == ResponseCode.SUCCESS
    assert dispatcher.broker.topics.find("made") == TopicConfig(
        "made", 2, 3, 6, order=True, attributes={"message.type": "NORMAL"}
    )
    table = parse_body(TopicConfigs, peer.ask(RequestCode.GET_ALL_TOPIC_CONFIG).body).topic_config_table
    assert table["made"].write_queue_nums == 3
    one = parse_body(TopicConfig, peer.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "made"}).body)
    assert one.read_queue_nums == 2
    for wrong in (make("ma/de"), make("TBW102"), make("made", perm=9), make("made", readQueueNums=0)):
        assert wrong == ResponseCode.INVALID_PARAMETER
    assert make("made", attributes="message.type") == ResponseCode.SYSTEM_ERROR
    send(peer)
    peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, QUEUE | GROUP | {"commitOffset": 1})
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"}).code == ResponseCode.SUCCESS
    assert peer.ask(RequestCode.PULL_MESSAGE, pull_fields("orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert dispatcher.broker.store.config.consumer_offsets.get("orders", "consumers", 0) is None
    assert peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "TBW102"}).code == ResponseCode.INVALID_PARAMETER


def test_groups_are_created_and_deleted(peer: Peer) -> None:
    config = SubscriptionGroupConfig("made", retry_max_times=3, consume_enable=False)
    assert peer.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=serialize_body(config)).code == 0
    answer = peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert parse_body(SubscriptionGroups, answer.body).subscription_group_table["made"] == config
    send(peer)
    refused = peer.ask(RequestCode.PULL_MESSAGE, pull_fields("orders", consumerGroup="made"))
    assert refused.code == ResponseCode.NO_PERMISSION
    peer.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "made", "cleanOffset": True})
    left = parse_body(SubscriptionGroups, peer.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)
    assert "made" not in left.subscription_group_table


def test_progress_is_returned(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    send(peer, 4)
    dispatcher.broker.groups.find_or_create("consumers")
    peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, QUEUE | GROUP | {"commitOffset": 3})
    queue = MessageQueue("orders", "broker-a", 0)
    topic = parse_body(TopicStats, peer.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}).body)
    assert topic.offset_table[queue][:3] == (0, 4, STORED_MS)
    group = parse_body(ConsumeStats, peer.ask(RequestCode.GET_CONSUME_STATS, GROUP).body)
    assert (group.offset_table[queue].lag, group.offset_table[queue].last_timestamp) == (1, STORED_MS)
    who = parse_body(GroupList, peer.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"}).body)
    assert who.group_list == ("consumers",)
    spans = peer.ask(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "orders", "group": "consumers"})
    assert len(parse_body(ConsumeTimeSpans, spans.body).consume_time_span_set) == 4
    all_stats = json.loads(
        bytes(peer.ask(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False}).body).split(b'"consumeStatsList"')[0]
        + b'"x":0}'
    )
    assert all_stats["brokerAddr"] == "127.0.0.1:10911"
    clock.now_ms += 10_000
    dispatcher.run_periodic_work(clock.now_ms)
    runtime = parse_body(KvTable, peer.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert (runtime["putMessageTimesTotal"], runtime["putTps"].split()[0]) == ("4", "0.4")
    stats = peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "orders"})
    assert parse_body(BrokerStatsData, stats.body).stats_minute.sum == 4
    unknown = peer.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "none"})
    assert unknown.code == ResponseCode.SYSTEM_ERROR
    reset = {"topic": "orders", "group": "consumers", "timestamp": -1, "isForce": True}
    peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert dispatcher.broker.store.config.consumer_offsets.get("orders", "consumers", 0) == 4
    cloned = {"srcGroup": "consumers", "destGroup": "others", "topic": "orders"}
    peer.ask(RequestCode.CLONE_GROUP_OFFSET, cloned)
    assert dispatcher.broker.store.config.consumer_offsets.get("orders", "others", 0) == 4


def test_a_request_to_a_consumer_is_forwarded(peer: Peer, dispatcher: Dispatcher) -> None:
    consumer, asker = peer, Peer(dispatcher)
    consumer.heartbeat("one", "consumers", "orders")
    connection = asker.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, GROUP)
    assert parse_body(ConsumerConnection, connection.body).connection_set[0].client_id == "one"
    assert asker.ask_later(RequestCode.GET_CONSUMER_RUNNING_INFO, GROUP | {"clientId": "one"}) == []
    question = consumer.sent[-1]
    assert (question.code, question.is_one_way) == (RequestCode.GET_CONSUMER_RUNNING_INFO, False)
    consumer.channel.deliver_answer(question.reply(0, body=b"{}"))
    assert (asker.sent[-1].code, asker.sent[-1].body) == (0, b"{}")
    assert asker.ask_later(RequestCode.GET_CONSUMER_RUNNING_INFO, GROUP | {"clientId": "one"}) == []
    consumer.channel.on_connection_lost()
    assert asker.sent[-1].code == ResponseCode.CONSUME_MSG_TIMEOUT
    gone = asker.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, GROUP | {"clientId": "two"})
    assert gone.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.QUERY_ASSIGNMENT])
def test_pop_is_refused_as_unsupported(peer: Peer, code: int) -> None:
    answer = peer.ask(code)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "POP" in str(answer.remark)


def test_an_unknown_request_and_a_wrong_body_are_answered(peer: Peer) -> None:
    assert peer.ask(9999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert peer.ask(RequestCode.HEART_BEAT, body=b"{").code == ResponseCode.SYSTEM_ERROR
    assert peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"a=b").code == ResponseCode.NO_PERMISSION
    assert b"brokerName=broker-a\n" in bytes(peer.ask(RequestCode.GET_BROKER_CONFIG).body)


def test_changing_offsets_creates_no_group(peer: Peer, dispatcher: Dispatcher) -> None:
    send(peer)
    update = QUEUE | {"consumerGroup": "unknown", "commitOffset": 1}
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    reset = {"topic": "orders", "group": "unknown", "timestamp": 0, "isForce": True}
    answer = peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert not dispatcher.broker.groups.has("unknown")


@pytest.mark.parametrize(("offset", "found"), [(0, 0), (3, 3), (4, None)])
def test_a_reset_sets_only_an_offset_within_the_queue(
    peer: Peer, dispatcher: Dispatcher, offset: int, found: int | None
) -> None:
    send(peer, 3)
    dispatcher.broker.groups.find_or_create("consumers")
    reset = {"topic": "orders", "group": "consumers", "timestamp": 0, "isForce": True, "queueId": 0, "offset": offset}
    answer = peer.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    assert dispatcher.broker.store.config.consumer_offsets.get("orders", "consumers", 0) == found
    if found is None:
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR, "Target offset 4 not in consume queue range [0-3]"
        )  # fmt: skip


@pytest.mark.parametrize(
    ("code", "first", "most", "total"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, "topicSeq", "maxTopicNum", "totalTopicNum"),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "groupSeq", "maxGroupNum", "totalGroupNum"),
    ],
)
def test_tables_are_returned_in_pages(
    peer: Peer, dispatcher: Dispatcher, code: int, first: str, most: str, total: str
) -> None:
    for number in range(5):
        dispatcher.broker.groups.find_or_create(f"group-{number}")

    def page(fields: dict[str, object]) -> list[str]:
        answer = peer.ask(code, fields)
        document = json.loads(bytes(answer.body))
        (table,) = [value for name, value in document.items() if name.endswith("Table")]
        assert answer.ext_fields[total] == str(len(everything) if everything else len(table))
        return list(table)

    everything: list[str] = []
    everything = page({})
    assert len(everything) >= 5
    pages = [page({first: number, most: 2}) for number in range(0, len(everything), 2)]
    assert [name for names in pages for name in names] == everything
    assert page({first: len(everything), most: 2}) == []


def test_all_producers_and_system_topics_are_listed(peer: Peer) -> None:
    send(peer)
    body = serialize_body(Heartbeat("client", (ProducerData("shop"),)))
    assert peer.ask(RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS
    producers = json.loads(bytes(peer.ask(RequestCode.GET_ALL_PRODUCER_INFO).body))
    (client,) = producers["data"]["shop"]
    assert (client["clientId"], client["remoteIP"], client["language"]) == ("client", "/127.0.0.1:50123", "PYTHON")
    assert client["lastUpdateTimestamp"] == STORED_MS
    topics = parse_body(TopicList, peer.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER).body).topic_list
    assert {"TBW102", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= set(topics)
    assert "orders" not in topics


@pytest.mark.parametrize(
    ("attributes", "kept"),
    [
        ("+message.type=FIFO,+queue.type=SimpleCQ", {"message.type": "FIFO", "queue.type": "SimpleCQ"}),
        ("+cleanup.policy=DELETE,-message.type", {"cleanup.policy": "DELETE"}),
        ("+queue.type=BatchCQ", {"queue.type": "BatchCQ"}),
        ("+queue.type=RocksDBCQ", None),
        ("+cleanup.policy=COMPACTION", None),
        ("+nothing=1", None),
        ("message.type", None),
    ],
)
def test_unsupported_attributes_of_a_topic_are_refused(
    peer: Peer, dispatcher: Dispatcher, attributes: str, kept: dict[str, str] | None
) -> None:
    fields = {
        "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6,
        "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False, "attributes": attributes,
    }  # fmt: skip
    answer = peer.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    made = dispatcher.broker.topics.find("orders")
    assert (answer.code == ResponseCode.SUCCESS, made.attributes if made else None) == (kept is not None, kept)


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_consumer_that_does_not_answer_does_not_delay_other_clients(
    peer: Peer, dispatcher: Dispatcher, clock: Clock, *, is_silent: bool
) -> None:
    consumer = Peer(dispatcher)
    consumer.heartbeat("one", "consumers", "orders")
    fields = GROUP | {"clientId": "one", "jstackEnable": False}
    assert peer.ask_later(RequestCode.GET_CONSUMER_RUNNING_INFO, fields) == []
    status = {"topic": "orders", "group": "consumers"}
    assert peer.ask_later(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status) == []
    if not is_silent:
        for question in consumer.sent[-2:]:
            consumer.channel.deliver_answer(question.reply(ResponseCode.SUCCESS, body=b"{}"))
    clock.now_ms += 9_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert len(peer.sent) == (0 if is_silent else 2)
    clock.now_ms += 1_000
    dispatcher.run_periodic_work(clock.now_ms)
    expected = ResponseCode.CONSUME_MSG_TIMEOUT if is_silent else ResponseCode.SUCCESS
    assert [answer.code for answer in peer.sent] == [expected, ResponseCode.SUCCESS]
    assert not dispatcher.broker.relayed
