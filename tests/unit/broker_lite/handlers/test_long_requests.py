"""Requests that take long: they keep no other client waiting, and lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from broker_lite.handlers.dispatcher import Dispatcher
from schemas.remoting.codes import RequestCode, ResponseCode
from tests.unit.broker_lite.broker_builders import Peer, pull_fields, records, send_fields

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


def pull_all(peer: Peer, dispatcher: Dispatcher, **fields: Any) -> tuple[list[bytes], int, int]:
    """Pull a queue to its end; returns the bodies, the number of pulls, and of turns that others had meanwhile."""
    bodies, pulls, turns, offset = list[bytes](), 0, 0, 0
    while True:
        found = peer.ask_once(PULL, pull_fields("orders", offset=offset, **fields))
        while not found:
            dispatcher.work()
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


def test_an_expensive_filter_blocks_nobody_and_loses_nothing(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 60)
    wanted = [str(number).encode() for number in range(60) if "7" in str(number)]
    monkeypatch.setattr("broker_lite.handlers.pulling.PULL_SECONDS", 0.002)
    monkeypatch.setattr("broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    monkeypatch.setattr("broker_lite.broker.slices.SLICE_SECONDS", 0)
    bodies, pulls, turns = pull_all(peer, dispatcher, subscription=EXPENSIVE, expressionType="SQL92")
    assert bodies == wanted
    assert pulls > 2
    assert turns + pulls >= 60


def test_a_cut_pull_keeps_to_its_limits(peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    send_wide(peer, 30)
    monkeypatch.setattr("broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    answers = peer.ask_later(PULL, pull_fields("orders", maxMsgNums=5))
    assert [record.body for record in records(answers[0].body)] == [b"0", b"1", b"2", b"3", b"4"]
    assert answers[0].ext_fields["nextBeginOffset"] == "5"
    limited = peer.ask_later(PULL, pull_fields("orders", maxMsgBytes=4000))
    assert 3 <= len(records(limited[0].body)) <= 4


def test_a_queue_that_goes_in_the_middle_of_a_pull_takes_nothing_with_it(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 4)
    monkeypatch.setattr("broker_lite.handlers.pulling.SLICE_SECONDS", 0)
    monkeypatch.setattr("broker_lite.broker.slices.SLICE_SECONDS", -1)
    assert peer.ask_once(PULL, pull_fields("orders")) == []
    dispatcher.broker.store.delete_queues("orders")
    while dispatcher.work():
        pass
    assert [record.body for record in records(peer.sent[-1].body)] == [b"0"]
    assert peer.sent[-1].ext_fields["nextBeginOffset"] == "1"


def test_others_are_served_while_a_request_takes_long(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 40)
    other = Peer(dispatcher)
    monkeypatch.setattr("broker_lite.handlers.pulling.SLICE_SECONDS", 0.0005)
    monkeypatch.setattr("broker_lite.broker.slices.SLICE_SECONDS", 0.0005)
    assert peer.ask_once(PULL, pull_fields("orders", subscription=EXPENSIVE, expressionType="SQL92")) == []
    assert other.ask_once(SEND, send_fields("orders"), b"more")[0].code == ResponseCode.SUCCESS
    while dispatcher.work():
        pass
    assert peer.sent[-1].code == ResponseCode.SUCCESS


def test_more_comparisons_than_a_filter_may_have_are_an_error_when_it_is_subscribed_to(peer: Peer) -> None:
    expression = " OR ".join(["a = 1"] * 257)
    answer = peer.ask(PULL, pull_fields("TBW102", subscription=expression, expressionType="SQL92"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "at most 256 comparisons" in str(answer.remark)
    expression = " AND ".join(["a = 1"] * 256)
    assert peer.ask(PULL, pull_fields("TBW102", subscription=expression, expressionType="SQL92")).code == 19


def test_waiting_pulls_with_an_expensive_filter_block_nobody(
    peer: Peer, dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_wide(peer, 1)
    fields = pull_fields("orders", offset=1, sysFlag=6, subscription=EXPENSIVE, expressionType="SQL92")
    for _ in range(50):
        assert peer.ask_later(PULL, fields) == []
    monkeypatch.setattr("broker_lite.broker.slices.SLICE_SECONDS", 0.0005)
    before = len(peer.sent)
    peer.ask_once(SEND, send_fields("orders", {"P": "x" * 1000, "N": "8", "UNIQ_KEY": "U8"}), b"8")
    assert len(dispatcher.broker.held) < 50
    while dispatcher.work():
        pass
    assert len(dispatcher.broker.held) == 50
    peer.ask_later(SEND, send_fields("orders", {"P": "x" * 1000, "N": "7", "UNIQ_KEY": "U7"}), b"7")
    assert len(dispatcher.broker.held) == 0
    pulled = [answer for answer in peer.sent[before:] if answer.body]
    assert [records(answer.body)[0].body for answer in pulled] == [b"7"] * 50
    assert {answer.ext_fields["nextBeginOffset"] for answer in pulled} == {"3"}
