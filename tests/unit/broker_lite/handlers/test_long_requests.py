"""Tests of long requests: they do not block other clients, and lose no message."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, ProducerData
from commitlake.schemas.remoting.json_fields import serialize_body
from tests.support.brokers import Peer, pull_fields, records, send_fields
from tests.support.machine_speed import takes_at_most

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def pull_all(peer: Peer, dispatcher: Dispatcher, **fields: Any) -> tuple[list[bytes], int, int]:
    """Pull a queue to its end; return the bodies, the number of pulls, and the number of turns for others meanwhile."""
    bodies, pulls, turns, offset = list[bytes](), 0, 0, 0
    while True:
        found = peer.ask_once(PULL, pull_fields("orders", offset=offset, **fields))
        while not found:
            dispatcher.run_long_requests()
            turns += 1
            found = peer.sent[-1:] if peer.sent[-1].opaque == peer.last_opaque else []
        answer = found[0]
        pulls += 1
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return bodies, pulls, turns
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY)
        assert int(answer.ext_fields["nextBeginOffset"]) > offset
        offset = int(answer.ext_fields["nextBeginOffset"])
        bodies += [record.body for record in records(answer.body)]


def send_wide(peer: Peer, count: int) -> None:
    """Send messages with a property of nearly 1 KB; every tenth is wanted."""
    for number in range(count):
        properties = {"P": "x" * 1000, "N": str(number), "UNIQ_KEY": f"U{number}"}
        answer = peer.ask(SEND, send_fields("orders", properties), f"{number}".encode())
        assert answer.code == ResponseCode.SUCCESS


EXPENSIVE = " OR ".join(["N CONTAINS '7'", *(f"P CONTAINS 'xy{number}'" for number in range(255))])


def test_a_pull_with_an_expensive_filter_is_split_and_loses_no_message(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 60)
    wanted = [str(number).encode() for number in range(60) if "7" in str(number)]
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.PULL_SECONDS", 0.002)
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", 0)
    bodies, pulls, turns = pull_all(peer, dispatcher, subscription=EXPENSIVE, expressionType="SQL92")
    assert bodies == wanted
    assert pulls > 2
    assert turns + pulls >= 60


def test_an_interrupted_pull_returns_the_messages_found_so_far(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 30)
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    everything: dict[str, Any] = {"subscription": "N IS NOT NULL", "expressionType": "SQL92"}
    answer = peer.ask(PULL, pull_fields("orders", **everything))
    assert [record.body for record in records(answer.body)] == [b"0"]
    assert answer.ext_fields["nextBeginOffset"] == "1"
    bodies, pulls, _ = pull_all(peer, dispatcher, **everything)
    assert bodies == [str(number).encode() for number in range(30)]
    assert pulls == 31
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.UNFILTERED_SECONDS", 0)
    bodies, pulls, _ = pull_all(peer, dispatcher)
    assert bodies == [str(number).encode() for number in range(30)]
    assert pulls == 3


def test_a_queue_may_be_deleted_during_a_pull(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 4)
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)
    assert peer.ask_once(PULL, pull_fields("orders", subscription="N = '3'", expressionType="SQL92")) == []
    dispatcher.broker.store.delete_queues("orders")
    while dispatcher.run_long_requests():
        pass
    assert (peer.sent[-1].code, peer.sent[-1].remark) == (ResponseCode.PULL_NOT_FOUND, "NO_MATCHED_LOGIC_QUEUE")


def test_other_clients_are_served_during_a_long_request(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 40)
    other = Peer(dispatcher)
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)
    assert peer.ask_once(PULL, pull_fields("orders", subscription="N = '39'", expressionType="SQL92")) == []
    assert other.ask_once(SEND, send_fields("orders"), b"more")[0].code == ResponseCode.SUCCESS
    while dispatcher.run_long_requests():
        pass
    assert [record.body for record in records(peer.sent[-1].body)] == [b"39"]


def test_a_filter_with_too_many_comparisons_is_refused_on_subscription(peer: Peer) -> None:
    expression = " OR ".join(["a = 1"] * 257)
    answer = peer.ask(PULL, pull_fields("TBW102", subscription=expression, expressionType="SQL92"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "at most 256 comparisons" in str(answer.remark)
    expression = " AND ".join(["a = 1"] * 256)
    assert peer.ask(PULL, pull_fields("TBW102", subscription=expression, expressionType="SQL92")).code == 19


def test_waiting_pulls_with_an_expensive_filter_do_not_block_other_clients(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 1)
    fields = pull_fields("orders", offset=1, sysFlag=6, subscription=EXPENSIVE, expressionType="SQL92")
    for _ in range(50):
        assert peer.ask_later(PULL, fields) == []
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", 0.0005)
    before = len(peer.sent)
    peer.ask_once(SEND, send_fields("orders", {"P": "x" * 1000, "N": "8", "UNIQ_KEY": "U8"}), b"8")
    assert len(dispatcher.broker.held) < 50
    while dispatcher.run_long_requests():
        pass
    assert len(dispatcher.broker.held) == 50
    peer.ask_later(SEND, send_fields("orders", {"P": "x" * 1000, "N": "7", "UNIQ_KEY": "U7"}), b"7")
    assert len(dispatcher.broker.held) == 0
    pulled = [answer for answer in peer.sent[before:] if answer.body]
    assert [records(answer.body)[0].body for answer in pulled] == [b"7"] * 50
    assert {answer.ext_fields["nextBeginOffset"] for answer in pulled} == {"3"}


def test_queries_and_tables_are_processed_in_small_steps(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        peer.ask(SEND, send_fields("orders", {"KEYS": "same", "UNIQ_KEY": f"U{number}"}), f"{number}".encode())
    for number in range(201):
        dispatcher.broker.topics.find_or_create(f"topic{number}", 1)
        dispatcher.broker.groups.find_or_create(f"group{number}")
        dispatcher.broker.store.config.consumer_offsets.commit("orders", f"group{number}", 0, number)
    query = {"topic": "orders", "key": "same", "maxNum": 3, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    reset = {"topic": "orders", "group": "group1", "timestamp": 0, "isForce": True}
    for code, fields, least in (
        (RequestCode.QUERY_MESSAGE, query, 5),
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}, 2),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {}, 2),
        (RequestCode.GET_ALL_CONSUMER_OFFSET, {}, 2),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"}, 1),
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "group1", "topic": "orders"}, 4),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "orders", "group": "group1"}, 4),
        (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset, 4),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": False}, 200),
    ):
        expected = peer.ask(code, fields)
        assert expected.code == ResponseCode.SUCCESS
        with monkeypatch.context() as patched:
            patched.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)
            assert peer.ask_once(code, fields) == []
            turns = 1
            while dispatcher.run_long_requests():
                turns += 1
        assert turns >= least, code
        assert (peer.sent[-1].code, peer.sent[-1].body) == (expected.code, expected.body), code


def test_a_query_that_takes_too_long_is_an_error(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.ask(SEND, send_fields("orders", {"KEYS": "same", "UNIQ_KEY": "U1"}), b"1")
    monkeypatch.setattr("commitlake.broker_lite.handlers.message_queries.QUERY_SECONDS", -1)
    query = {"topic": "orders", "key": "same", "maxNum": 3, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    answer = peer.ask(RequestCode.QUERY_MESSAGE, query)
    assert (answer.code, answer.body) == (ResponseCode.SYSTEM_ERROR, b"")
    assert "the query took longer" in str(answer.remark)


def test_a_query_returns_the_newest_messages_that_fit(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        peer.ask(SEND, send_fields("orders", {"KEYS": "same", "UNIQ_KEY": f"U{number}"}), f"{number}".encode() * 1000)
    monkeypatch.setattr("commitlake.broker_lite.handlers.message_queries.ANSWER_BYTES", 2500)
    query = {"topic": "orders", "key": "same", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 60}
    answer = peer.ask(RequestCode.QUERY_MESSAGE, query)
    assert [record.body[:1] for record in records(answer.body)] == [b"2", b"3"]


@pytest.mark.parametrize(
    "body", [b"{0:" + b"{1:" * 80_000, b"{" + b'1:"",' * 50_000 + b'1:""}', b"{0:[" + b'"",' * 80_000 + b'""]}']
)
@pytest.mark.usefixtures("without_collection")
def test_bodies_of_plain_json_are_not_parsed_as_fastjson(peer: Peer, body: bytes) -> None:
    codes = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ,
             RequestCode.CHECK_CLIENT_CONFIG, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
             RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)  # fmt: skip
    for code in codes:
        answer = peer.ask(code, {}, body)
        assert takes_at_most(0.05, partial(peer.ask, code, {}, body))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "expected" in str(answer.remark)


WIDE_SEARCHES: dict[str, Any] = {
    "subscription": " OR ".join(["N = '1'", *(f"p CONTAINS '{'a' * 40}b{number:03d}'" for number in range(240))]),
    "expressionType": "SQL92",
}


@pytest.fixture
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an evaluation pause after each search, and a slice end after each step."""
    monkeypatch.setattr("commitlake.schemas.remoting.sql92.SEARCHES_AT_ONCE", 1)
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)


@pytest.mark.usefixtures("short_slices")
def test_one_message_does_not_block_other_clients(peer: Peer, dispatcher: Dispatcher) -> None:
    wide = "a" * 3_500
    for number in range(2):
        properties = {"p": wide, "N": str(number), "UNIQ_KEY": f"U{number}"}
        assert peer.ask(SEND, send_fields("orders", properties), f"{number}".encode()).code == ResponseCode.SUCCESS
    assert peer.ask_once(PULL, pull_fields("orders", **WIDE_SEARCHES)) == []
    turns = 0
    while dispatcher.run_long_requests():
        turns += 1
    assert turns > 200
    answer = peer.sent[-1]
    assert [record.body for record in records(answer.body)] == [b"1"]
    assert answer.ext_fields["nextBeginOffset"] == "2"


@pytest.mark.usefixtures("short_slices")
def test_a_pull_whose_time_is_up_examines_at_least_one_message(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        properties = {"p": "a" * 3_500, "N": str(number), "UNIQ_KEY": f"U{number}"}
        assert peer.ask(SEND, send_fields("orders", properties), f"{number}".encode()).code == ResponseCode.SUCCESS
    monkeypatch.setattr("commitlake.broker_lite.handlers.pulling.PULL_SECONDS", 0)
    bodies, pulls, turns = pull_all(peer, dispatcher, **WIDE_SEARCHES)
    assert bodies == [b"1"]
    assert pulls <= 5
    assert turns > 400


@pytest.mark.usefixtures("short_slices")
def test_a_waiting_pull_finds_a_message_after_a_long_evaluation(peer: Peer, dispatcher: Dispatcher) -> None:
    waiting = Peer(dispatcher)
    assert peer.ask(SEND, send_fields("orders"), b"x").code == ResponseCode.SUCCESS
    assert waiting.ask_later(PULL, pull_fields("orders", offset=1, sysFlag=6, **WIDE_SEARCHES)) == []
    for number in range(2):
        properties = {"p": "a" * 3_500, "N": str(number), "UNIQ_KEY": f"U{number}"}
        peer.ask(SEND, send_fields("orders", properties), f"{number}".encode())
    while dispatcher.run_long_requests():
        pass
    assert [record.body for record in records(waiting.sent[-1].body)] == [b"1"]


MEMBERS_OF_ALL: dict[int, dict[str, str]] = {
    RequestCode.GET_ALL_PRODUCER_INFO: {},
    RequestCode.GET_PRODUCER_CONNECTION_LIST: {"producerGroup": "p"},
    RequestCode.GET_CONSUMER_CONNECTION_LIST: {"consumerGroup": "c"},
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: {"consumerGroup": "c"},
}


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=pytest.mark.long("the list of all producers is split or refused each time"))
        if code == RequestCode.GET_PRODUCER_CONNECTION_LIST
        else code
        for code in MEMBERS_OF_ALL
    ],
)
def test_a_list_of_many_members_is_split_or_refused(
    peer: Peer, dispatcher: Dispatcher, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 1000, 250):
        clients = Peer(dispatcher)
        for number in range(first, first + 250):
            groups = (ProducerData("p"), ProducerData(f"p{number}"))
            body = serialize_body(Heartbeat(f"client{number}", groups, (ConsumerData("c"),)))
            assert clients.ask(RequestCode.HEART_BEAT, body=body).code == ResponseCode.SUCCESS
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)
    assert peer.ask_once(code, MEMBERS_OF_ALL[code]) == []
    turns = 0
    while dispatcher.run_long_requests():
        turns += 1
    assert turns >= 9
    answer = peer.sent[-1]
    assert answer.code == ResponseCode.SUCCESS
    found = bytes(answer.body)
    assert all(f'"client{number}"'.encode() in found for number in range(1000))
    json.loads(found)
    monkeypatch.setattr("commitlake.broker_lite.protocol.large_answer_bodies.MAX_FRAME_BYTES", 5000)
    assert "expected an answer of at most 5000 bytes" in str(peer.ask(code, MEMBERS_OF_ALL[code]).remark)
