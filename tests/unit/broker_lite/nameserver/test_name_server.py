"""Tests of the name server: registrations of brokers, and routes for clients."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from commitlake.broker_lite.broker.accounts import REGISTRATION, Accounts
from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.nameserver.routes import DEFAULT_TIMEOUT_MS, MAX_TIMEOUT_MS
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import to_ext_fields
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.json_fields import parse_body, serialize_body
from commitlake.schemas.remoting.name_server_headers import BrokerRequest, RegisterBrokerRequest
from commitlake.schemas.remoting.registration import serialize_registration
from commitlake.schemas.remoting.routes import ClusterInfo, KvTable, TopicList, TopicRoute
from commitlake.schemas.remoting.signing import Credentials, sign_fields
from commitlake.schemas.remoting.topic_and_group_configs import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
)
from tests.support.brokers import answer_of
from tests.support.machine_speed import longest_step_is_at_most
from tests.support.small_stores import Clock

MASTER = RegisterBrokerRequest("broker-a", "10.0.0.1:10911", "C", "10.0.0.1:10912", 0)


def channel(ip: str = "127.0.0.1") -> Channel:
    """Return a connection."""
    return Channel(Host.of(ip, 40000), lambda _: None, lambda: None)


@pytest.fixture
def name_server(clock: Clock) -> NameServer:
    """A name server without brokers."""
    return NameServer(clock)


def ask(
    server: NameServer, code: int, body: bytes = b"", by: Channel | None = None, version: int = 513, **fields: object
) -> Command:
    """Send a request, and return its answer."""
    text = {key: str(value) for key, value in fields.items()}
    return answer_of(server, by or channel(), Command(code, text, body, version=version))


def register(
    server: NameServer,
    *topics: str,
    request: RegisterBrokerRequest = MASTER,
    by: Channel | None = None,
    counter: int = 1,
) -> Command:
    """Register a broker."""
    table = {topic: TopicConfig(topic, 4, 4, attributes={}) for topic in topics}
    body = serialize_body(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, counter))))
    fields = to_ext_fields(request._replace(body_crc32=zlib.crc32(body) & 0x7FFFFFFF))
    return answer_of(server, by or channel(), Command(RequestCode.REGISTER_BROKER, fields, body))


def route(server: NameServer, topic: str) -> TopicRoute | None:
    """Return the route of a topic."""
    answer = ask(server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    return parse_body(TopicRoute, answer.body) if answer.code == 0 else None


def test_a_route_has_the_queues_and_brokers_of_a_topic(name_server: NameServer) -> None:
    assert ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders").code == ResponseCode.TOPIC_NOT_EXIST
    register(name_server, "orders")
    found = route(name_server, "orders")
    assert found is not None
    assert found.queue_datas[0][:4] == ("broker-a", 4, 4, 6)
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}


def test_old_clients_get_unquoted_numbers_as_keys(name_server: NameServer) -> None:
    register(name_server, "orders")
    new = ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders", version=401)
    assert json.loads(bytes(new.body))["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}
    old = ask(name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="orders", version=400)
    assert b'{0:"10.0.0.1:10911"}' in bytes(old.body)
    clusters = ask(name_server, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert b'{0:"10.0.0.1:10911"}' in bytes(clusters.body)
    assert parse_body(ClusterInfo, clusters.body).cluster_addr_table == {"C": ("broker-a",)}


def test_only_the_master_registers_topics(name_server: NameServer) -> None:
    register(name_server, "orders", "payments")
    register(name_server, "orders", counter=2)
    # As in RocketMQ: a topic must also be deleted on the name server.
    assert route(name_server, "payments") is not None
    slave = MASTER._replace(broker_id=1, broker_addr="10.0.0.2:10911")
    answer = register(name_server, "others", request=slave)
    assert answer.ext_fields["masterAddr"] == "10.0.0.1:10911"
    assert answer.ext_fields["haServerAddr"] == "10.0.0.1:10912"
    assert route(name_server, "others") is None
    found = route(name_server, "orders")
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}


def test_a_broker_that_moves_is_registered_at_its_new_address(name_server: NameServer) -> None:
    register(name_server, "orders")
    register(name_server, "orders", request=MASTER._replace(broker_addr="10.0.0.9:10911"), counter=2)
    found = route(name_server, "orders")
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: "10.0.0.9:10911"}


def test_a_broker_is_removed_on_disconnect_unregistration_or_timeout(name_server: NameServer, clock: Clock) -> None:
    connection = channel()
    register(name_server, "orders", by=connection)
    name_server.on_connection_lost(connection)
    assert route(name_server, "orders") is None
    register(name_server, "orders")
    fields: dict[str, Any] = to_ext_fields(BrokerRequest("broker-a", "10.0.0.1:10911", "C", 0))
    ask(name_server, RequestCode.UNREGISTER_BROKER, **fields)
    assert route(name_server, "orders") is None
    register(name_server, "orders")
    clock.now_ms += DEFAULT_TIMEOUT_MS
    ask(name_server, RequestCode.BROKER_HEARTBEAT, **fields)
    name_server.run_periodic_work()
    assert route(name_server, "orders") is not None
    clock.now_ms += DEFAULT_TIMEOUT_MS + 1
    name_server.run_periodic_work()
    assert route(name_server, "orders") is None


def test_a_compressed_registration_is_read(name_server: NameServer) -> None:
    table = {"orders": TopicConfig("orders", 2, 2, attributes={})}
    body = serialize_registration(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, 1))))
    fields = to_ext_fields(MASTER._replace(compressed=True))
    assert answer_of(name_server, channel(), Command(RequestCode.REGISTER_BROKER, fields, body)).code == 0
    assert route(name_server, "orders") is not None


def test_a_body_with_another_checksum_is_refused(name_server: NameServer) -> None:
    fields = to_ext_fields(MASTER._replace(body_crc32=1))
    assert answer_of(name_server, channel(), Command(RequestCode.REGISTER_BROKER, fields, b"{}")).code == 1


def test_a_broker_learns_whether_its_topics_have_changed(name_server: NameServer) -> None:
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


def test_the_write_permission_of_a_broker_can_be_removed_and_restored(name_server: NameServer) -> None:
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


def test_settings_have_limits(name_server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.nameserver.handlers.MAX_SETTINGS", 6)

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


ADMIN, SHOP = Credentials("the-admin", "secret-of-the-admin"), Credentials("the-shop", "secret-of-the-shop")
BROKER = Credentials("the-broker", "secret-of-the-broker")
LOCAL = RegisterBrokerRequest("local", "127.0.0.1:10911", "C", "", 0)


@pytest.fixture
def guarded(clock: Clock) -> NameServer:
    """A name server with accounts, and a broker in its process that has the topic `mine`."""
    secrets = {one.access_key: one.secret_key for one in (ADMIN, SHOP, BROKER)}
    return with_local_broker(NameServer(clock, Accounts(secrets, frozenset({"the-admin"}), frozenset({"the-broker"}))))


def with_local_broker(server: NameServer) -> NameServer:
    """Register a broker in the same process, which has the topic `mine`."""
    server.register_local_broker(LOCAL, TopicConfigs({"mine": TopicConfig("mine", 4, 4)}, DataVersion(1, 1)))
    return server


CHANGES: list[tuple[int, dict[str, str]]] = [
    (RequestCode.REGISTER_BROKER, to_ext_fields(MASTER)),
    (RequestCode.UNREGISTER_BROKER, to_ext_fields(BrokerRequest("broker-a", "10.0.0.1:10911", "C", 0))),
    (RequestCode.BROKER_HEARTBEAT, to_ext_fields(BrokerRequest("broker-a", "10.0.0.1:10911", "C", 0))),
    (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}),
    (RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}),
    (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"}),
    (RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"}),
    (RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "k"}),
]


@pytest.mark.parametrize(("code", "fields"), CHANGES)
def test_with_accounts_every_change_needs_the_signature_of_an_allowed_account(
    guarded: NameServer, code: int, fields: dict[str, str]
) -> None:
    body = b"{}" if code == RequestCode.REGISTER_BROKER else b""
    by = channel("127.0.0.1")

    def send(credentials: Credentials) -> int:
        return answer_of(guarded, by, Command(code, sign_fields(fields, body, credentials), body)).code

    assert answer_of(guarded, by, Command(code, fields, body)).code == ResponseCode.NO_PERMISSION
    assert send(Credentials("the-admin", "guessed")) == ResponseCode.NO_PERMISSION
    assert send(SHOP) == ResponseCode.NO_PERMISSION
    assert send(BROKER) == (ResponseCode.SUCCESS if code in REGISTRATION else ResponseCode.NO_PERMISSION)
    assert send(ADMIN) == ResponseCode.SUCCESS


@pytest.mark.parametrize(("code", "fields"), CHANGES)
@pytest.mark.parametrize("ip", ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_without_accounts_administration_comes_from_this_machine(
    name_server: NameServer, code: int, fields: dict[str, str], ip: str
) -> None:
    body = b"{}" if code == RequestCode.REGISTER_BROKER else b""
    is_allowed = code in REGISTRATION or ip in ("127.0.0.1", "::1", "::ffff:127.0.0.1")
    answer = answer_of(name_server, channel(ip), Command(code, fields, body))
    assert answer.code == (ResponseCode.SUCCESS if is_allowed else ResponseCode.NO_PERMISSION)


def test_with_accounts_queries_need_no_signature(guarded: NameServer) -> None:
    assert route(guarded, "mine") is not None


def test_a_replayed_registration_cannot_unregister_the_broker(guarded: NameServer) -> None:
    own, another = channel("10.0.0.1"), channel("10.0.0.1")
    fields = sign_fields(to_ext_fields(MASTER), b"{}", BROKER)
    assert answer_of(guarded, own, Command(RequestCode.REGISTER_BROKER, fields, b"{}")).code == ResponseCode.SUCCESS
    again = Command(RequestCode.UNREGISTER_BROKER, fields, b"{}")
    assert answer_of(guarded, another, again).code == ResponseCode.NO_PERMISSION
    assert "broker-a" in parse_body(ClusterInfo, ask(guarded, RequestCode.GET_BROKER_CLUSTER_INFO).body)[0]
    assert answer_of(guarded, own, again).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "other",
    [
        LOCAL,
        LOCAL._replace(broker_addr="10.6.6.6:10911"),
        LOCAL._replace(broker_id=1),
        LOCAL._replace(broker_name="another"),
        LOCAL._replace(broker_addr="10.6.6.6:10911", broker_id=1, cluster_name="D"),
    ],
)
def test_a_registration_cannot_replace_the_local_broker(name_server: NameServer, other: Any) -> None:
    with_local_broker(name_server)
    assert register(name_server, "mine", "more", request=other).code == ResponseCode.NO_PERMISSION
    found = route(name_server, "mine")
    assert found is not None
    assert [broker.broker_addrs for broker in found.broker_datas] == [{0: "127.0.0.1:10911"}]
    assert route(name_server, "more") is None


def test_a_slave_of_the_local_broker_can_register(name_server: NameServer) -> None:
    with_local_broker(name_server)
    slave = LOCAL._replace(broker_addr="10.0.0.2:10911", broker_id=1, enable_acting_master=True)
    assert register(name_server, request=slave).ext_fields["masterAddr"] == "127.0.0.1:10911"
    found = route(name_server, "mine")
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "10.0.0.2:10911"}
    assert not found.broker_datas[0].enable_acting_master


def test_other_machines_cannot_unregister_or_restrict_the_local_broker(name_server: NameServer) -> None:
    with_local_broker(name_server)
    fields: dict[str, Any] = to_ext_fields(BrokerRequest("local", "127.0.0.1:10911", "C", 0))
    there = channel("10.0.0.1")
    assert ask(name_server, RequestCode.UNREGISTER_BROKER, by=there, **fields).code == ResponseCode.NO_PERMISSION
    wiped = ask(name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, by=there, brokerName="local")
    assert wiped.code == ResponseCode.NO_PERMISSION
    found = route(name_server, "mine")
    assert found is not None
    assert found.queue_datas[0].perm == 6
    here = channel("127.0.0.1")
    wiped = ask(name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, by=here, brokerName="local")
    assert wiped.ext_fields["wipeTopicCount"] == "1"


def test_a_topic_that_the_local_broker_has_cannot_be_deleted(name_server: NameServer) -> None:
    with_local_broker(name_server)
    ask(name_server, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="mine")
    assert route(name_server, "mine") is not None
    name_server.register_local_broker(LOCAL, TopicConfigs({}, DataVersion(1, 2)))
    ask(name_server, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="mine")
    assert route(name_server, "mine") is None


@pytest.mark.parametrize(
    "request_of_broker",
    [
        MASTER._replace(broker_name="x" * 256),
        MASTER._replace(cluster_name="x" * 256),
        MASTER._replace(broker_addr="x" * 262),
        MASTER._replace(ha_server_addr="x" * 262),
        MASTER._replace(broker_id=-1),
    ],
)
def test_a_registration_with_impossible_names_is_refused(name_server: NameServer, request_of_broker: Any) -> None:
    assert register(name_server, "orders", request=request_of_broker).code == ResponseCode.SYSTEM_ERROR
    assert route(name_server, "orders") is None


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_registration_with_an_impossible_topic_registers_no_topic(name_server: NameServer, name: str) -> None:
    assert register(name_server, "orders", name).code == ResponseCode.SYSTEM_ERROR
    assert route(name_server, "orders") is None


@pytest.mark.parametrize("count", [-1, 65_537, 2**31 - 1])
def test_a_topic_with_an_impossible_number_of_queues_is_refused(name_server: NameServer, count: int) -> None:
    table = {"orders": TopicConfig("orders", count, 4)}
    body = serialize_body(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, 1))))
    answer = answer_of(name_server, channel(), Command(RequestCode.REGISTER_BROKER, to_ext_fields(MASTER), body))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert route(name_server, "orders") is None


def test_numbers_of_brokers_topics_and_filter_servers_are_limited(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.nameserver.routes.MAX_BROKERS", 2)
    monkeypatch.setattr("commitlake.broker_lite.nameserver.routes.MAX_ROUTES", 4)
    monkeypatch.setattr("commitlake.broker_lite.nameserver.routes.MAX_TOPICS", 3)
    second = MASTER._replace(broker_name="broker-b", broker_addr="10.0.0.2:10911")
    third = MASTER._replace(broker_name="broker-c", broker_addr="10.0.0.3:10911")
    assert register(name_server, "a", "b", "c", "d").code == ResponseCode.SYSTEM_ERROR
    assert register(name_server, "a", "b", "c").code == ResponseCode.SUCCESS
    assert register(name_server, "a", "b", request=second).code == ResponseCode.SYSTEM_ERROR
    assert register(name_server, "a", request=second).code == ResponseCode.SUCCESS
    assert register(name_server, request=third).code == ResponseCode.SYSTEM_ERROR
    # Removed entries do not count.
    ask(name_server, RequestCode.DELETE_TOPIC_IN_NAMESRV, topic="a")
    fields: dict[str, Any] = to_ext_fields(BrokerRequest("broker-b", "10.0.0.2:10911", "C", 0))
    ask(name_server, RequestCode.UNREGISTER_BROKER, **fields)
    assert register(name_server, "b", "c", request=third).code == ResponseCode.SUCCESS
    body = serialize_body(RegisterBrokerBody(TopicConfigs(), ("10.0.0.1:1",) * 65))
    answer = answer_of(name_server, channel(), Command(RequestCode.REGISTER_BROKER, to_ext_fields(MASTER), body))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_broker_is_removed_after_the_maximum_timeout(name_server: NameServer, clock: Clock) -> None:
    register(name_server, "orders", request=MASTER._replace(heartbeat_timeout_millis=2**62))
    clock.now_ms += MAX_TIMEOUT_MS + 1
    name_server.run_periodic_work()
    assert route(name_server, "orders") is None


def large_registration(count: int, *, compressed: bool, prefix: str = "topic") -> Command:
    """Return a master's registration with many topics."""
    table = {f"{prefix}{number}": TopicConfig(f"{prefix}{number}", number % 9, 4) for number in range(count)}
    registration = RegisterBrokerBody(TopicConfigs(table, DataVersion(1, len(prefix))))
    body = serialize_registration(registration) if compressed else serialize_body(registration)
    fields = to_ext_fields(MASTER._replace(compressed=compressed, body_crc32=zlib.crc32(body) & 0x7FFFFFFF))
    return Command(RequestCode.REGISTER_BROKER, fields, body)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_registration_takes_small_steps_and_takes_effect_at_once(
    name_server: NameServer, *, compressed: bool
) -> None:
    answering = name_server.handle(channel(), large_registration(1000, compressed=compressed))
    assert not isinstance(answering, Command)
    steps = 0
    while True:
        assert route(name_server, "topic0") is None
        try:
            next(answering)
        except StopIteration as end:
            assert end.value.code == ResponseCode.SUCCESS
            break
        steps += 1
    assert steps >= 1000
    assert route(name_server, "topic0") is not None
    assert route(name_server, "topic999") is not None


HOSTILE_BODIES = {
    "texts": b'{"a":[' + b'"",' * 100_000 + b'""]}',
    "objects": b'{"a":[' + b"{}," * 100_000 + b"1]}",
    "brackets": b'{"topicConfigSerializeWrapper":' + b"[" * 300_000,
    "keys that are numbers": b"{0:" + b"{1:" * 100_000,
    "filter servers": b'{"filterServerList":[' + b"1," * 100_000 + b"1]}",
    "one wide topic": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{' + b'"":"",' * 50_000 + b'"a":1}}}}',
    "one long name": b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"' + b"x" * 300_000 + b'":{}}}}',
    "blanks": b" " * 300_000,
    "no text": b'{"a":"' + b"\xff" * 300_000 + b'"}',
}


@pytest.mark.parametrize("body", HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
@pytest.mark.usefixtures("without_collection")
def test_hostile_registrations_are_parsed_in_short_steps(name_server: NameServer, body: bytes) -> None:
    def steps() -> Iterable[object]:
        answering = name_server.handle(channel(), Command(RequestCode.REGISTER_BROKER, to_ext_fields(MASTER), body))
        assert not isinstance(answering, Command)
        return answering

    assert longest_step_is_at_most(0.05, steps)


def test_a_truncated_or_invalid_registration_changes_nothing(name_server: NameServer) -> None:
    register(name_server, "orders")
    table = {f"T{number}": TopicConfig(f"T{number}") for number in range(100)} | {"": TopicConfig("")}
    body = serialize_body(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, 9))))
    for wrong in (body, body[:-1], body[:-40], body + b"x"):
        request = Command(RequestCode.REGISTER_BROKER, to_ext_fields(MASTER), wrong)
        assert answer_of(name_server, channel(), request).code == ResponseCode.SYSTEM_ERROR
    assert route(name_server, "T0") is None
    assert route(name_server, "orders") is not None


def test_deleted_topics_of_a_broker_are_removed_at_the_limit(
    name_server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.nameserver.routes.MAX_TOPICS", 4)
    monkeypatch.setattr("commitlake.broker_lite.nameserver.routes.MAX_ROUTES", 4)
    register(name_server, "a", "b")
    register(name_server, "c", "d", counter=2)
    assert route(name_server, "a") is not None
    assert register(name_server, "e", counter=3).code == ResponseCode.SUCCESS
    assert [topic for topic in "abcde" if route(name_server, topic)] == ["e"]


def test_a_new_registration_resets_the_write_permission(name_server: NameServer) -> None:
    register(name_server, "orders")
    ask(name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")
    register(name_server, "orders")
    found = route(name_server, "orders")
    assert found is not None
    assert found.queue_datas[0].perm == 4
    register(name_server, "orders", counter=2)
    found = route(name_server, "orders")
    assert found is not None
    assert found.queue_datas[0].perm == 6
    assert ask(name_server, RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="x").ext_fields["wipeTopicCount"] == "0"


def test_many_topics_are_listed_in_their_order(name_server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.nameserver.routes._NAMES_OF_STEP", 10)
    names = [f"topic{number:04}" for number in range(250)]
    register(name_server, *reversed(names))
    register(name_server, "topic0007", request=MASTER._replace(broker_name="broker-b", broker_addr="10.0.0.2:1"))
    answer = ask(name_server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert parse_body(TopicList, answer.body).topic_list == tuple(names)
    monkeypatch.setattr("commitlake.broker_lite.protocol.large_answer_bodies.MAX_FRAME_BYTES", 1000)
    assert ask(name_server, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).code == ResponseCode.SYSTEM_ERROR


def test_all_settings_together_have_a_limit(name_server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlake.broker_lite.nameserver.handlers.MAX_SETTINGS_LENGTH", 20)

    def put(key: str, value: str) -> int:
        return ask(name_server, RequestCode.PUT_KV_CONFIG, namespace="N", key=key, value=value).code

    assert put("a", "x" * 8) == ResponseCode.SUCCESS
    assert put("b", "x" * 9) == ResponseCode.SYSTEM_ERROR
    assert put("b", "x" * 8) == ResponseCode.SUCCESS
    assert put("a", "x" * 9) == ResponseCode.SYSTEM_ERROR
    assert put("a", "y" * 8) == ResponseCode.SUCCESS
    ask(name_server, RequestCode.DELETE_KV_CONFIG, namespace="N", key="a")
    assert put("c", "x" * 8) == ResponseCode.SUCCESS


def test_a_data_version_has_a_size_limit(name_server: NameServer) -> None:
    fields: dict[str, Any] = to_ext_fields(BrokerRequest("broker-a", "10.0.0.1:10911", "C", 0))
    answer = ask(name_server, RequestCode.QUERY_DATA_VERSION, b'{"a":"' + b"x" * 5000 + b'"}', **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
