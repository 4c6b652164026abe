"""Tests of pulls: found messages, waiting pulls, and refused requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlake.broker_lite.broker.options import BrokerOptions
from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.broker_lite.stores.rocketmq import DiskFullError
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.headers import OFFSET_WAS_RESET
from tests.support.brokers import Peer, message_store, open_broker, pull_fields, records, send_fields
from tests.support.small_stores import Clock

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
MAY_WAIT = 2 | 4


def send(peer: Peer, count: int = 1, start: int = 0) -> None:
    """Send messages with alternating tags."""
    for number in range(start, start + count):
        properties = {"UNIQ_KEY": f"U{number}", "TAGS": f"tag{number % 3}", "number": str(number)}
        assert peer.ask(SEND, send_fields("orders", properties), f"body {number}".encode()).code == 0


def test_records_are_returned_as_stored(peer: Peer, dispatcher: Dispatcher) -> None:
    send(peer, 5)
    answer = peer.ask(PULL, pull_fields("orders", offset=1))
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
    assert {name: answer.ext_fields[name] for name in ("nextBeginOffset", "minOffset", "maxOffset")} == {
        "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5",
    }  # fmt: skip
    assert records(answer.body) == message_store(dispatcher).get("orders", 0, 1).messages


@pytest.mark.parametrize(
    ("expression", "kind", "numbers"),
    [
        ("*", "TAG", [0, 1, 2, 3, 4, 5]),
        ("tag1", "TAG", [1, 4]),
        ("tag0 || tag2", "TAG", [0, 2, 3, 5]),
        ("number BETWEEN 2 AND 4 AND TAGS <> 'tag0'", "SQL92", [2, 4]),
    ],
)
def test_a_filter_selects_messages(peer: Peer, expression: str, kind: str, numbers: list[int]) -> None:
    send(peer, 6)
    answer = peer.ask(PULL, pull_fields("orders", subscription=expression, expressionType=kind))
    assert [record.queue_offset for record in records(answer.body)] == numbers


def test_a_pull_without_a_match_returns_the_next_offset(peer: Peer) -> None:
    send(peer, 3)
    answer = peer.ask(PULL, pull_fields("orders", subscription="other"))
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "3")


@pytest.mark.parametrize(("slave_read", "written_after", "suggested"), [(False, 10, 0), (True, 10, 1), (True, 0, 0)])
def test_a_consumer_with_a_large_lag_is_redirected_to_a_slave(
    tmp_path: Path, clock: Clock, slave_read: bool, written_after: int, suggested: int
) -> None:
    options = BrokerOptions(slave_read=slave_read, in_memory_bytes=1000)
    dispatcher = open_broker(tmp_path / "master", clock, options)
    with dispatcher.broker.store:
        peer = Peer(dispatcher)
        send(peer, 1 + written_after)
        answer = peer.ask(PULL, pull_fields("orders", maxMsgNums=1))
        assert answer.ext_fields["suggestWhichBrokerId"] == str(suggested)


def test_an_answer_has_limits_but_at_least_one_record(peer: Peer) -> None:
    send(peer, 40)
    assert len(records(peer.ask(PULL, pull_fields("orders", maxMsgNums=100)).body)) == 32
    assert len(records(peer.ask(PULL, pull_fields("orders", maxMsgNums=3)).body)) == 3
    assert len(records(peer.ask(PULL, pull_fields("orders", maxMsgBytes=1)).body)) == 1


@pytest.mark.parametrize(
    ("offset", "code", "status", "following"),
    [
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (99, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0),
    ],
)
def test_an_offset_outside_the_queue_is_corrected(
    peer: Peer, offset: int, code: int, status: str, following: int
) -> None:
    send(peer, 3)
    answer = peer.ask(PULL, pull_fields("orders", offset=offset))
    assert (answer.code, answer.remark, answer.ext_fields["nextBeginOffset"]) == (code, status, str(following))


@pytest.mark.parametrize(("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (7, ResponseCode.PULL_OFFSET_MOVED)])
def test_a_pull_of_an_empty_queue_returns_no_message(peer: Peer, offset: int, code: int) -> None:
    send(peer)
    assert peer.ask(PULL, pull_fields("orders", queue_id=1, offset=offset)).code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (pull_fields("nothing"), ResponseCode.TOPIC_NOT_EXIST),
        (pull_fields("orders", queue_id=4), ResponseCode.INVALID_PARAMETER),
        (pull_fields("orders", queue_id=-1), ResponseCode.INVALID_PARAMETER),
        (pull_fields("orders", sysFlag=0), ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (pull_fields("orders", subscription="a >", expressionType="SQL92"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (pull_fields("orders", expressionType="XPATH"), ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (pull_fields("orders", consumerGroup="no/group"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "orders"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_wrong_requests_are_refused(peer: Peer, fields: dict[str, object], code: int) -> None:
    send(peer)
    assert peer.ask(PULL, fields).code == code


def test_a_pull_waits_for_a_message(peer: Peer) -> None:
    send(peer)
    assert peer.ask_later(PULL, pull_fields("orders", offset=1, sysFlag=MAY_WAIT)) == []
    answers = peer.ask_later(SEND, send_fields("orders", {"UNIQ_KEY": "U9"}), b"new")
    found = [answer for answer in answers if answer.body]
    assert [record.body for record in records(found[0].body)] == [b"new"]


def test_a_waiting_pull_is_answered_by_a_message_that_matches_its_filter(
    peer: Peer, dispatcher: Dispatcher, clock: Clock
) -> None:
    send(peer)
    wanted = pull_fields("orders", offset=1, sysFlag=MAY_WAIT, subscription="tag2")
    assert peer.ask_later(PULL, wanted) == []
    send(peer, 1, start=1)
    assert not peer.sent[-1].body
    peer.ask_later(SEND, send_fields("orders", {"UNIQ_KEY": "U2", "TAGS": "tag2"}), b"body 2")
    found = next(answer for answer in peer.sent if answer.body)
    assert [record.tags for record in records(found.body)] == ["tag2"]


def test_a_message_that_arrives_during_the_search_of_a_waiting_pull_is_found(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(peer)
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler._PAUSE_FACTOR", 0)
    wanted = pull_fields("orders", offset=1, sysFlag=MAY_WAIT, subscription="number = 2", expressionType="SQL92")
    assert peer.ask_later(PULL, wanted) == []
    monkeypatch.setattr(
        "commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1
    )  # one step, then others have a turn
    for number in (1, 2):
        properties = {"UNIQ_KEY": f"U{number}", "number": str(number)}
        peer.ask_once(SEND, send_fields("orders", properties), b"body")
    while dispatcher.run_long_requests():
        pass
    found = next(answer for answer in peer.sent if answer.body)
    assert [record.queue_offset for record in records(found.body)] == [2]


def test_a_pull_waits_no_longer_than_its_timeout(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    send(peer)
    assert peer.ask_later(PULL, pull_fields("orders", offset=1, sysFlag=MAY_WAIT)) == []
    before = len(peer.sent)
    clock.now_ms += 14_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert peer.sent[before:] == []
    clock.now_ms += 1_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert [answer.code for answer in peer.sent[before:]] == [ResponseCode.PULL_NOT_FOUND]
    assert len(dispatcher.broker.held) == 0


def test_a_waiting_pull_keeps_neither_body_nor_fields_of_its_request(peer: Peer, dispatcher: Dispatcher) -> None:
    send(peer)
    assert peer.ask_later(PULL, pull_fields("orders", offset=1, sysFlag=MAY_WAIT), b"x" * 10_000) == []
    (held,) = dispatcher.broker.held.take("orders", 0)
    assert (held.request.body, held.request.ext_fields) == (b"", {})


def test_the_number_of_waiting_pulls_with_long_subscriptions_is_limited(peer: Peer, dispatcher: Dispatcher) -> None:
    send(peer)
    fields = pull_fields("orders", offset=1, sysFlag=MAY_WAIT, subscription="||".join(map(str, range(2000))))
    answers = [peer.ask_later(PULL, fields) for _ in range(25)]
    assert len(dispatcher.broker.held) == answers.count([]) == 19
    # Pulls over the limit are answered immediately; other pulls still wait.
    assert answers[-1][0].code == ResponseCode.PULL_NOT_FOUND
    assert Peer(dispatcher).ask_later(PULL, pull_fields("orders", offset=1, sysFlag=MAY_WAIT)) == []
    dispatcher.broker.held.take("orders", 0)
    assert peer.ask_later(PULL, fields) == []


@pytest.mark.parametrize("subscription", ["x" * 16_385, "||".join(map(str, range(130_000)))])
def test_a_subscription_that_takes_long_to_read_is_refused(peer: Peer, subscription: str) -> None:
    send(peer)
    for kind in ("TAG", "SQL92"):
        fields = pull_fields("orders", subscription=subscription, expressionType=kind)
        answer = peer.ask(PULL, fields)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "expected a filter of at most 16384 characters" in str(answer.remark)


def test_a_waiting_pull_is_dropped_when_its_client_disconnects(
    peer: Peer, dispatcher: Dispatcher, clock: Clock
) -> None:
    send(peer)
    peer.ask_later(PULL, pull_fields("orders", offset=1, sysFlag=MAY_WAIT))
    peer.channel.on_connection_lost()
    dispatcher.on_connection_lost(peer.channel)
    clock.now_ms += 2_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert len(dispatcher.broker.held) == 0


def test_a_full_disk_does_not_stop_timeouts_of_pulls_and_clients(
    peer: Peer, dispatcher: Dispatcher, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = message_store(dispatcher)
    peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders", {"UNIQ_KEY": "U", "DELAY": "1"}))
    peer.heartbeat("client", "consumers", "orders")
    assert peer.ask_later(PULL, pull_fields("orders", sysFlag=MAY_WAIT)) == []
    with monkeypatch.context() as full:

        def refuse(_: object) -> None:
            raise DiskFullError("4096 bytes of free disk are needed for a new file, found 0")

        full.setattr(store, "put", refuse)
        clock.now_ms += 16_000
        dispatcher.run_periodic_work(clock.now_ms)
        assert peer.sent[-1].code == ResponseCode.PULL_NOT_FOUND
        clock.now_ms += 120_001
        dispatcher.run_periodic_work(clock.now_ms)
        assert not dispatcher.broker.clients.consumers
    clock.now_ms += 5_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert store.max_offset("orders", 0) == 1


def test_a_pull_may_commit_an_offset(peer: Peer, dispatcher: Dispatcher) -> None:
    send(peer, 2)
    peer.ask(PULL, pull_fields("orders", sysFlag=1 | MAY_WAIT, commitOffset=1))
    assert dispatcher.broker.store.config.consumer_offsets.get("orders", "consumers", 0) == 1


def test_a_pull_without_a_subscription_uses_that_of_the_heartbeat(peer: Peer) -> None:
    send(peer, 6)
    peer.heartbeat("client", "consumers", "orders", "tag1")
    answer = peer.ask(PULL, pull_fields("orders", sysFlag=0))
    assert [record.tags for record in records(answer.body)] == ["tag1", "tag1"]
    assert peer.ask(PULL, pull_fields("orders", sysFlag=0, subVersion=2)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


def test_a_reset_redirects_a_waiting_consumer_once(peer: Peer, dispatcher: Dispatcher) -> None:
    send(peer, 5)
    peer.heartbeat("client", "consumers", "orders")
    update = {"consumerGroup": "consumers", "topic": "orders", "queueId": 0, "commitOffset": 5}
    assert peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update).code == ResponseCode.SUCCESS
    assert peer.ask_later(PULL, pull_fields("orders", offset=5, sysFlag=MAY_WAIT)) == []
    reset = {"topic": "orders", "group": "consumers", "timestamp": 0, "isForce": True}
    before = len(peer.sent)
    peer.ask_later(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
    moved = next(answer for answer in peer.sent[before:] if answer.code == ResponseCode.PULL_OFFSET_MOVED)
    assert moved.ext_fields["nextBeginOffset"] == "0"
    asked = {"consumerGroup": "consumers", "topic": "orders", "queueId": 0}
    assert peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked).ext_fields["offset"] == "0"
    assert len(records(peer.ask(PULL, pull_fields("orders")).body)) == 5
    ignored = peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, update | {"queueId": 1})  # not yet pulled since
    assert (ignored.code, ignored.remark) == (ResponseCode.SUCCESS, OFFSET_WAS_RESET)


def test_an_answer_too_large_for_a_frame_is_an_error_for_the_requester(peer: Peer) -> None:
    # In the answer's JSON each of these letters takes six bytes.
    answer = peer.ask(PULL, pull_fields("\u00e9" * 200_000))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("the answer does not fit in a frame: ")
    send(peer)
    assert peer.ask(PULL, pull_fields("orders")).code == ResponseCode.SUCCESS
