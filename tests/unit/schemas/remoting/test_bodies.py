"""Bodies as brokers and clients write them."""

from __future__ import annotations

import json
import zlib

import pytest

from commitlake.schemas.remoting.codes import describe_response_code
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.frames import version_name
from commitlake.schemas.remoting.heartbeats import (
    ConsumerData,
    Heartbeat,
    LockBatchResult,
    ProducerData,
    SubscriptionData,
    subscription_of_tags,
)
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body
from commitlake.schemas.remoting.registration import (
    MAX_REGISTRATION_BYTES,
    serialize_registration,
)
from commitlake.schemas.remoting.routes import (
    BrokerData,
    ClusterInfo,
    MessageQueue,
    QueueData,
    TopicRoute,
    publish_queues,
    subscribe_queues,
)
from commitlake.schemas.remoting.statistics_bodies import (
    ConsumerOffsetTable,
    ConsumeStats,
    DelayOffsetTable,
    QueueOffsetPair,
    TopicOffset,
    TopicStats,
)
from commitlake.schemas.remoting.topic_and_group_configs import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
)
from tests.support.registrations import parse_registration

ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:21911"},"brokerName":"lab-a","cluster":"Lab",'
    b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"lab-a","perm":6,'
    b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
TOPIC_STATS = (
    b'{"offsetTable":{{"brokerName":"lab-a","queueId":1,"topic":"TopicN"}:'
    b'{"lastUpdateTimestamp":1795247801799,"maxOffset":1,"minOffset":0}},"topicPutTps":0.2}'
)
CONSUME_STATS = (
    b'{"consumeTps":0.1,"offsetTable":{{"brokerName":"lab-a","queueId":1,"topic":"TopicR"}:'
    b'{"brokerOffset":3,"consumerOffset":1,"lastTimestamp":1795247801799,"pullOffset":1}}}'
)
HEARTBEAT = json.dumps(
    {
        "clientID": "10.0.0.5@1234#567",
        "producerDataSet": [{"groupName": "PG"}],
        "consumerDataSet": [
            {
                "groupName": "CG",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "unitMode": False,
                "subscriptionDataSet": [
                    {
                        "topic": "T",
                        "subString": "a || b",
                        "tagsSet": ["a", "b"],
                        "codeSet": ["97", 98],  # the C++ client writes text
                        "subVersion": "1700000000000",
                        "expressionType": None,
                        "classFilterMode": False,
                    }
                ],
            }
        ],
        "heartbeatFingerprint": 0,
    }
).encode()
"""All but the last as real brokers and clients wrote them."""


def test_a_route_is_read_in_both_dialects() -> None:
    route = parse_body(TopicRoute, ROUTE)
    assert route == TopicRoute(
        (QueueData("lab-a", 4, 4, 6),), (BrokerData("lab-a", {0: "127.0.0.1:21911"}, "Lab", False),)
    )
    assert parse_body(TopicRoute, ROUTE.replace(b"{0:", b'{"0":')) == route
    assert b'{0:"127' in serialize_body(route)
    assert json.loads(serialize_body(route, is_standard_json=True))["brokerDatas"][0]["brokerAddrs"] == {
        "0": "127.0.0.1:21911"
    }


def test_queues_follow_from_a_route_as_javas_client_reads_it() -> None:
    route = TopicRoute(
        (QueueData("b", 2, 1, 6), QueueData("a", 1, 2, 2), QueueData("c", 1, 1, 4), QueueData("d", 1, 1, 6)),
        (
            BrokerData("a", {0: "a:1"}),
            BrokerData("b", {0: "b:1", 1: "b:2"}),
            BrokerData("c", {0: "c:1"}),
            BrokerData("d", {1: "d:2"}),  # a slave without its master
        ),
    )
    assert publish_queues("T", route) == [
        MessageQueue("T", "a", 0), MessageQueue("T", "a", 1), MessageQueue("T", "b", 0),
    ]  # fmt: skip
    assert [queue[1:] for queue in subscribe_queues("T", route)] == [("b", 0), ("b", 1), ("c", 0), ("d", 0)]
    ordered = route._replace(order_topic_conf="b:1;a:2;broken")
    assert [queue[1:] for queue in publish_queues("T", ordered)] == [("b", 0), ("a", 0), ("a", 1)]
    assert [broker.any_address for broker in route.broker_datas] == ["a:1", "b:1", "c:1", "d:2"]
    assert BrokerData("e", {}).any_address is None


def test_objects_as_keys_are_parsed() -> None:
    queue = MessageQueue("TopicN", "lab-a", 1)
    stats = parse_body(TopicStats, TOPIC_STATS)
    assert stats == TopicStats({queue: TopicOffset(0, 1, 1795247801799)}, 0.2)
    assert parse_body(TopicStats, serialize_body(stats)) == stats
    assert serialize_body(stats).startswith(b'{"offsetTable":{{"brokerName":"lab-a","queueId":1,"topic":"TopicN"}:{')
    (progress,) = parse_body(ConsumeStats, CONSUME_STATS).offset_table.values()
    assert (progress, progress.lag) == (QueueOffsetPair(3, 1, 1795247801799, 1), 2)


def test_tables_of_offsets_are_read() -> None:
    assert parse_body(ConsumerOffsetTable, b'{"offsetTable":{"T@G":{0:1,1:0}}}').offset_table == {"T@G": {0: 1, 1: 0}}
    assert parse_body(DelayOffsetTable, b'{"offsetTable":{2:1,3:1}}').offset_table == {2: 1, 3: 1}


def test_a_cluster_may_be_empty() -> None:
    assert parse_body(ClusterInfo, b"{}") == ClusterInfo()


def test_heartbeats_of_every_client_are_parsed() -> None:
    wanted = SubscriptionData("T", "a || b", ("a", "b"), (97, 98), 1700000000000)
    beat = Heartbeat("10.0.0.5@1234#567", (ProducerData("PG"),), (ConsumerData("CG", subscription_data_set=(wanted,)),))
    assert parse_body(Heartbeat, HEARTBEAT) == beat
    assert parse_body(Heartbeat, serialize_body(beat)) == beat
    assert b'"clientID":"10.0.0.5@1234#567"' in serialize_body(beat)
    assert serialize_body(LockBatchResult()) == b'{"lockOKMQSet":[]}'


@pytest.mark.parametrize(
    ("expression", "tags", "codes"),
    [("*", (), ()), ("", (), ()), ("a", ("a",), (97,)), (" a ||b|| a||", ("a", "b"), (97, 98)),
     ("Aa || BB", ("Aa", "BB"), (2112,)), ("* || a", ("*", "a"), (42, 97)), (" * ", ("*",), (42,)), (" ", (), ())],
)  # fmt: skip
def test_tags_become_a_subscription(expression: str, tags: tuple[str, ...], codes: tuple[int, ...]) -> None:
    found = subscription_of_tags("T", expression, 5)
    assert (found.tags_set, found.code_set, found.sub_version) == (tags, codes, 5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "TopicRoute: expected JSON"),
        (b"\xff\xfe", "TopicRoute: expected JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "TopicRoute: expected an object"),
        (b'{"queueDatas":{}}', r"TopicRoute\.queueDatas: expected a list"),
        (b'{"queueDatas":[1]}', r"TopicRoute\.queueDatas: expected an object"),
        (b'{"queueDatas":[{}]}', "expected the field 'brokerName', found none"),
        (b'{"queueDatas":[{"brokerName":null}]}', "expected the field 'brokerName', found none"),
        (b'{"queueDatas":[{"brokerName":[]}]}', r"queueDatas\.brokerName: expected text"),
        (b'{"queueDatas":[{"brokerName":"a","readQueueNums":true}]}', "readQueueNums: expected a whole number of 32"),
        (b'{"queueDatas":[{"brokerName":"a","readQueueNums":1.5}]}', "found 1.5"),
        (b'{"queueDatas":[{"brokerName":"a","readQueueNums":2147483648}]}', "of 32 bits"),
        (b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"y"}}]}', "of 64 bits, found 'x'"),
        (b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":[]}]}', "brokerAddrs: expected an object"),
        (b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{},"enableActingMaster":1}]}', "expected true or false"),
        (b'{"filterServerTable":{{"a":1}:[]}}', "expected text"),
    ],
)
def test_an_error_in_a_body_names_its_position(body: bytes, message: str) -> None:
    with pytest.raises(BodyError, match=message):
        parse_body(TopicRoute, body)


def test_bodies_over_the_limit_and_invalid_numbers_are_errors() -> None:
    with pytest.raises(BodyError, match="expected at most 10 bytes, found 11"):
        parse_body(TopicRoute, b"{         }", limit=10)
    with pytest.raises(BodyError, match="consumeTps: expected a number"):
        parse_body(ConsumeStats, b'{"consumeTps":"fast"}')
    with pytest.raises(BodyError, match="consumeTps: expected a number"):
        parse_body(ConsumeStats, b'{"consumeTps":' + b"9" * 400 + b"}")


REGISTRATION = RegisterBrokerBody(
    TopicConfigs(
        {"T": TopicConfig("T", 4, 4, 6, attributes={"+message.type": "NORMAL"}), "%DLQ%g": TopicConfig("%DLQ%g", 1, 1)},
        DataVersion(1795247801799, 3),
    )
)


def test_a_registration_is_read_in_both_forms() -> None:
    assert parse_registration(serialize_body(REGISTRATION), is_compressed=False) == REGISTRATION
    for version in (409, 513):
        assert (
            parse_registration(serialize_registration(REGISTRATION, version=version), is_compressed=True)
            == REGISTRATION
        )


def test_a_registration_of_4_9_has_no_attributes() -> None:
    def counted(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    body = counted(b'{"counter":1,"timestamp":2}') + b"\0\0\0\1" + counted(b"T 4 4 6 SINGLE_TAG") + counted(b"[]")
    found = parse_registration(zlib.compress(body), is_compressed=True)
    assert found.topic_config_serialize_wrapper.topic_config_table == {"T": TopicConfig("T", 4, 4, 6)}
    for cut in range(len(body)):
        with pytest.raises(BodyError):
            parse_registration(zlib.compress(body[:cut]), is_compressed=True)
    for wrong in (b"T 4 4 SINGLE_TAG", b"T 4 4 x SINGLE_TAG", b"T 4 4 6 NO_TAG", b"T 4 4 6 SINGLE_TAG {", b"T"):
        data = counted(b"{}") + b"\0\0\0\1" + counted(wrong) + counted(b"[]")
        with pytest.raises(BodyError):
            parse_registration(zlib.compress(data), is_compressed=True)


def test_a_compressed_registration_has_a_size_limit() -> None:
    bomb = zlib.compress(bytes(MAX_REGISTRATION_BYTES + 1))
    with pytest.raises(BodyError, match="expected at most 16777216 bytes once decompressed, found more"):
        parse_registration(bomb, is_compressed=True)
    with pytest.raises(BodyError, match="found a truncated one"):
        parse_registration(zlib.compress(b"{}")[:-3], is_compressed=True)
    with pytest.raises(BodyError, match="expected a zlib stream"):
        parse_registration(b"no zlib", is_compressed=True)


def test_codes_and_versions_have_names() -> None:
    assert (describe_response_code(17), describe_response_code(9999)) == ("TOPIC_NOT_EXIST (17)", "9999")
    assert (version_name(513), version_name(9999)) == ("V5_5_0", "version 9999")
