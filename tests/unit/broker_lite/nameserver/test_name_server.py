"""The name server: what brokers say, and what clients are told."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from broker_lite.nameserver import NameServer
from broker_lite.nameserver.routes import DEFAULT_TIMEOUT_MS
from broker_lite.protocol import Channel
from schemas.layouts.hosts import Host
from schemas.layouts.remoting import Command
from schemas.remoting.codes import RequestCode, ResponseCode
from schemas.remoting.configs import DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigs
from schemas.remoting.ext_fields import to_ext_fields
from schemas.remoting.json_fields import parse_body, serialize_body
from schemas.remoting.name_server_headers import BrokerRequest, RegisterBrokerRequest
from schemas.remoting.registration import serialize_registration
from schemas.remoting.routes import ClusterInfo, KvTable, TopicList, TopicRoute
from tests.unit.broker_lite.builders import Clock

MASTER = RegisterBrokerRequest("broker-a", "10.0.0.1:10911", "C", "10.0.0.1:10912", 0)


def channel() -> Channel:
    """A connection."""
    return Channel(Host.of("10.0.0.1", 40000), lambda _: None, lambda: None)


@pytest.fixture
def name_server(clock: Clock) -> NameServer:
    """One that knows nothing."""
    return NameServer(clock)


def ask(
    server: NameServer, code: int, body: bytes = b"", by: Channel | None = None, version: int = 513, **fields: object
) -> Command:
    """A request's answer."""
    text = {key: str(value) for key, value in fields.items()}
    return server.handle(by or channel(), Command(code, text, body, version=version))


def register(
    server: NameServer,
    *topics: str,
    request: RegisterBrokerRequest = MASTER,
    by: Channel | None = None,
    counter: int = 1,
) -> Command:
    """A broker's registration."""
    table = {topic: TopicConfig(topic, 4, 4, attributes={}) for topic in topics}
    body = serialize_body(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, counter))))
    fields = to_ext_fields(request._replace(body_crc32=zlib.crc32(body) & 0x7FFFFFFF))
    return server.handle(by or channel(), Command(RequestCode.REGISTER_BROKER, fields, body))


def route(server: NameServer, topic: str) -> TopicRoute | None:
    """Where a topic is."""
    answer = ask(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    return parse_body(TopicRoute, answer.body) if answer.code == 0 else None


def test_a_route_leads_to_the_brokers_of_a_topic(name_server: NameServer) -> None:
    assert ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").code == ResponseCode.TOPIC_NOT_EXIST
    register(name_server, "orders")
    found = route(name_server, "orders")
    assert found is not None
    assert found.queue_datas[0][:4] == ("broker-a", 4, 4, 6)
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}


def test_old_clients_get_numbers_as_keys_without_quotes(name_server: NameServer) -> None:
    register(name_server, "orders")
    new = ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders", version=401)
    assert json.loads(bytes(new.body))["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
    old = ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders", version=400)
    assert b'{0:"10.0.0.1:10911"}' in bytes(old.body)
    clusters = ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b'{0:"10.0.0.1:10911"}' in bytes(clusters.body)
    assert parse_body(ClusterInfo, clusters.body).cluster_addr_table == {"C": ("broker-a",)}


def test_topics_follow_their_master(name_server: NameServer) -> None:
    register(name_server, "orders", "payments")
    register(name_server, "orders", counter=2)
    # As RocketMQ's: who deletes a topic does so here, too.
    assert route(name_server, "payments") is not None
    slave = MASTER._replace(broker_id=1, broker_addr="10.0.0.2:10911")
    answer = register(name_server, "others", request=slave)
    assert answer.ext_fields["masterAddr"] == "10.0.0.1:10911"
    assert answer.ext_fields["haServerAddr"] == "10.0.0.1:10912"
    assert route(name_server, "others") is None
    found = route(name_server, "orders")
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_a_broker_that_moves_is_known_at_its_new_address(name_server: NameServer) -> None:
    register(name_server, "orders")
    register(name_server, "orders", request=MASTER._replace(broker_addr="10.0.0.9:10911"), counter=2)
    found = route(name_server, "orders")
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.9:10911"}


def test_a_broker_goes_with_its_connection_its_word_or_its_silence(name_server: NameServer, clock: Clock) -> None:
    connection = channel()
    register(name_server, "orders", by=connection)
    name_server.lost(connection)
    assert route(name_server, "orders") is None
    register(name_server, "orders")
    fields: dict[str, Any] = to_ext_fields(BrokerRequest("broker-a", "10.0.0.1:10911", "C", 0))
    ask(name_server, RequestCode.UNREGISTER_BROKER, **fields)
    assert route(name_server, "orders") is None
    register(name_server, "orders")
    clock.now_ms += DEFAULT_TIMEOUT_MS
    ask(name_server, RequestCode.BROKER_HEARTBEAT, **fields)
    name_server.tick()
    assert route(name_server, "orders") is not None
    clock.now_ms += DEFAULT_TIMEOUT_MS + 1
    name_server.tick()
    assert route(name_server, "orders") is None


def test_a_compressed_registration_is_read(name_server: NameServer) -> None:
    table = {"orders": TopicConfig("orders", 2, 2, attributes={})}
    body = serialize_registration(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, 1))))
    fields = to_ext_fields(MASTER._replace(compressed=True))
    assert name_server.handle(channel(), Command(RequestCode.REGISTER_BROKER, fields, body)).code == 0
    assert route(name_server, "orders") is not None


def test_a_body_with_another_checksum_is_refused(name_server: NameServer) -> None:
    fields = to_ext_fields(MASTER._replace(body_crc32=1))
    assert name_server.handle(channel(), Command(RequestCode.REGISTER_BROKER, fields, b"{}")).code == 1


def test_a_broker_learns_whether_its_topics_are_known(name_server: NameServer) -> None:
    register(name_server, "orders", counter=7)
    fields: dict[str, Any] = to_ext_fields(BrokerRequest("broker-a", "10.0.0.1:10911", "C", 0))
    for counter, changed in ((7, "false"), (8, "true")):
        answer = ask(name_server, RequestCode.QUERY_DATA_VERSION, serialize_body(DataVersion(1, counter)), **fields)
        assert answer.ext_fields["changed"] == changed
        assert parse_body(DataVersion, answer.body) == DataVersion(1, 7)


def test_topics_are_listed(name_server: NameServer) -> None:
    register(name_server, "orders", "payments")
    questions: tuple[tuple[int, dict[str, Any], tuple[str, ...]], ...] = (
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, ("orders", "payments")),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}, ("orders", "payments")),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"}, ()),
        (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}, ("C", "broker-a")),
    )
    for code, fields, expected in questions:
        assert parse_body(TopicList, ask(name_server, code, **fields).body).topic_list == expected
    ask(name_server, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="orders", clusterName="C")
    assert route(name_server, "orders") is None


def test_producers_are_kept_off_a_broker(name_server: NameServer) -> None:
    register(name_server, "orders")
    wiped = ask(name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    assert wiped.ext_fields["wipeTopicCount"] == "1"
    found = route(name_server, "orders")
    assert found is not None
    assert found.queue_datas[0].perm == 4
    ask(name_server, RequestCode.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    found = route(name_server, "orders")
    assert found is not None
    assert found.queue_datas[0].perm == 6


def test_settings_are_kept_by_namespace(name_server: NameServer) -> None:
    ask(name_server, RequestCode.PUT_KV_CONFIG, namespace="N", key="k", value="v")
    assert ask(name_server, RequestCode.GET_KV_CONFIG, namespace="N", key="k").ext_fields == {"value": "v"}
    table = ask(name_server, RequestCode.GET_KVLIST_BY_NAMESPACE, namespace="N")
    assert parse_body(KvTable, table.body).table == {"k": "v"}
    ask(name_server, RequestCode.DELETE_KV_CONFIG, namespace="N", key="k")
    assert ask(name_server, RequestCode.GET_KV_CONFIG, namespace="N", key="k").code == ResponseCode.QUERY_NOT_FOUND
    assert ask(name_server, 9999).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert ask(name_server, RequestCode.PUT_KV_CONFIG, namespace="N").code == ResponseCode.SYSTEM_ERROR


def test_strangers_do_not_choose_how_many_settings_are_kept(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_lite.nameserver.handlers.MAX_SETTINGS", 6)

    def put(namespace: str, key: str, value: str = "v") -> int:
        return ask(name_server, RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value).code

    assert put("N", "k", "x" * 9000) == ResponseCode.SYSTEM_ERROR
    assert [put("N", f"k{number}") for number in range(4)] == [0, 0, 0, 0]
    # A namespace whose settings were deleted is still there, as in RocketMQ.
    assert put("M", "k") == ResponseCode.SUCCESS
    ask(name_server, RequestCode.DELETE_KV_CONFIG, namespace="M", key="k")
    assert put("O", "k") == ResponseCode.SYSTEM_ERROR
    assert put("N", "k0", "another") == ResponseCode.SUCCESS
    assert ask(name_server, RequestCode.GET_KV_CONFIG, namespace="N", key="k0").ext_fields == {"value": "another"}
