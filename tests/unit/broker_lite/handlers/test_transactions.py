"""Tests of transactions: decisions of producers, and checks of producers that have not decided."""

from __future__ import annotations

import pytest

from commitlake.broker_lite.handlers.dispatcher import Dispatcher
from commitlake.schemas.layouts.rocketmq.commitlog import parse_message
from commitlake.schemas.layouts.rocketmq.message_id import parse_message_id
from commitlake.schemas.layouts.rocketmq.topics import HALF_TOPIC
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.heartbeats import Heartbeat, ProducerData
from commitlake.schemas.remoting.json_fields import serialize_body
from tests.support.brokers import Peer, message_store, send_fields
from tests.support.message_stores import BORN_MS
from tests.support.small_stores import Clock

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
HALF = {"UNIQ_KEY": "U1", "TRAN_MSG": "true", "PGROUP": "producers"}


def send_half(peer: Peer, **properties: str) -> dict[str, object]:
    """Send a half message; return the fields with which its producer decides about it."""
    answer = peer.ask(RequestCode.SEND_MESSAGE_V2, send_fields("orders", HALF | properties, e=1, f=4), b"paid")
    assert answer.code == ResponseCode.SUCCESS
    offset = parse_message_id(answer.ext_fields["msgId"]).physical_offset
    return {
        "producerGroup": "producers", "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": offset, "msgId": "U1",
    }  # fmt: skip


def decide(peer: Peer, half: dict[str, object], how: int) -> int:
    """Send a producer's decision, and return the code of the answer."""
    return peer.ask(RequestCode.END_TRANSACTION, half | {"commitOrRollback": how}).code


def register(peer: Peer) -> None:
    """Register as a member of the producers."""
    peer.ask(RequestCode.HEART_BEAT, body=serialize_body(Heartbeat("client", (ProducerData("producers"),))))


def check_halves(dispatcher: Dispatcher, clock: Clock, seconds: int = 31) -> None:
    """Let the broker check waiting half messages."""
    clock.now_ms += seconds * 1000
    while dispatcher.run_periodic_work(clock.now_ms):
        pass


def test_a_commit_delivers_the_message(peer: Peer, dispatcher: Dispatcher) -> None:
    half = send_half(peer)
    store = message_store(dispatcher)
    assert store.max_offset("orders", 1) == 0
    assert decide(peer, half, COMMIT) == ResponseCode.SUCCESS
    (message,) = store.get("orders", 1, 0).messages
    assert (message.body, message.prepared_transaction_offset) == (b"paid", half["commitLogOffset"])
    assert decide(peer, half, COMMIT) == ResponseCode.SYSTEM_ERROR
    assert store.max_offset("orders", 1) == 1


def test_a_rollback_drops_the_message(peer: Peer, dispatcher: Dispatcher) -> None:
    half = send_half(peer)
    assert decide(peer, half, ROLLBACK) == ResponseCode.SUCCESS
    assert decide(peer, half, COMMIT) == ResponseCode.SYSTEM_ERROR
    assert dispatcher.broker.store.max_offset("orders", 1) == 0


def test_a_decision_must_match_its_half_message(peer: Peer) -> None:
    half = send_half(peer)
    for changes in ({"tranStateTableOffset": 7}, {"commitLogOffset": 3}, {"producerGroup": "others"}):
        assert decide(peer, half | changes, COMMIT) == ResponseCode.SYSTEM_ERROR
    assert decide(peer, half, COMMIT) == ResponseCode.SUCCESS


def test_a_producer_that_answered_unknown_is_asked_again(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    register(peer)
    half = send_half(peer)
    assert decide(peer, half, UNKNOWN) == ResponseCode.SUCCESS
    check_halves(dispatcher, clock)
    question = peer.sent[-1]
    assert (question.code, question.is_one_way) == (RequestCode.CHECK_TRANSACTION_STATE, True)
    fields = question.ext_fields
    parsed = parse_message(bytes(question.body))
    assert parsed is not None
    assert (parsed[0].topic, parsed[0].queue_id, parsed[0].body) == ("orders", 1, b"paid")
    answer = half | {
        "commitLogOffset": fields["commitLogOffset"], "tranStateTableOffset": fields["tranStateTableOffset"],
    }  # fmt: skip
    assert decide(peer, answer, COMMIT) == ResponseCode.SUCCESS
    assert dispatcher.broker.store.max_offset("orders", 1) == 1
    before = len(peer.sent)
    check_halves(dispatcher, clock)
    assert len(peer.sent) == before


def test_a_late_decision_about_the_first_record_is_accepted(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    register(peer)
    half = send_half(peer)
    check_halves(dispatcher, clock)
    check_halves(dispatcher, clock)
    assert dispatcher.broker.store.max_offset(HALF_TOPIC, 0) == 3
    assert decide(peer, half, COMMIT) == ResponseCode.SUCCESS
    assert decide(peer, half, COMMIT) == ResponseCode.SYSTEM_ERROR
    assert dispatcher.broker.store.max_offset("orders", 1) == 1
    check_halves(dispatcher, clock)
    assert dispatcher.broker.store.max_offset(HALF_TOPIC, 0) == 3


def test_a_half_message_younger_than_the_timeout_is_not_checked(
    peer: Peer, dispatcher: Dispatcher, clock: Clock
) -> None:
    register(peer)
    # The check is made when the half message is less than six seconds old.
    clock.now_ms = BORN_MS - 26_000
    dispatcher._next_check_ms = BORN_MS + 5_000
    send_half(peer)
    before = len(peer.sent)
    clock.now_ms = BORN_MS + 5_000
    dispatcher.run_periodic_work(clock.now_ms)
    assert len(peer.sent) == before
    check_halves(dispatcher, clock)
    assert peer.sent[-1].code == RequestCode.CHECK_TRANSACTION_STATE


def test_a_half_message_without_a_decision_is_discarded_after_15_checks(
    peer: Peer, dispatcher: Dispatcher, clock: Clock
) -> None:
    send_half(peer)
    for _ in range(15):
        check_halves(dispatcher, clock)
    store = message_store(dispatcher)
    assert store.max_offset("TRANS_CHECK_MAX_TIME_TOPIC", 0) == 0
    check_halves(dispatcher, clock)
    (given_up,) = store.get("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0).messages
    assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "15"
    assert list(dispatcher.broker.delivery.take_due_half_messages(clock.now_ms, 0, 15)) == []


def test_no_producer_is_asked_while_a_half_message_is_immune(peer: Peer, dispatcher: Dispatcher, clock: Clock) -> None:
    register(peer)
    half = send_half(peer, CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
    before = len(peer.sent)
    check_halves(dispatcher, clock)
    assert len(peer.sent) == before
    assert decide(peer, half, COMMIT) == ResponseCode.SUCCESS


def test_many_half_messages_are_checked_in_steps(
    peer: Peer, dispatcher: Dispatcher, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("commitlake.broker_lite.handlers.dispatcher.SLICE_SECONDS", 0)
    register(peer)
    for _ in range(5):
        send_half(peer)
    clock.now_ms += 31_000
    counts = []
    for _ in range(6):
        before = len(peer.sent)
        has_more = dispatcher.run_periodic_work(clock.now_ms)
        counts.append((len(peer.sent) - before, has_more))
    assert counts == [(1, True)] * 5 + [(0, False)]
