"""Requests and answers without a socket."""

from __future__ import annotations

import pytest

from commitlake.connectors.rocketmq.pending_requests import PendingRequests
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.remoting.frames import Command, parse_command, serialize_command


def sent(data: bytes) -> Command:
    parsed = parse_command(data)
    assert parsed is not None
    return parsed[0]


def test_answers_find_their_requests_in_any_order() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    first, second = (sent(exchange.register_request(Command(30), ticket, 10)) for ticket in ("first", "second"))
    data = serialize_command(second.reply(0)) + serialize_command(first.reply(22))
    answers, requests = exchange.receive(data)
    assert [(ticket, command.code) for ticket, command in answers] == [("second", 0), ("first", 22)]
    assert (requests, exchange.pending_count) == ([], 0)


def test_answers_are_complete_for_any_division_of_the_bytes() -> None:
    request = sent(PendingRequests[str]().register_request(Command(30), "it", 10))
    data = serialize_command(request.reply(0, {"offset": "1"}, b"body")) * 2
    for cut in range(1, len(data)):
        exchange: PendingRequests[str] = PendingRequests()
        exchange.register_request(Command(30), "it", 10)
        exchange.register_request(Command(30), "other", 10)
        answers = exchange.receive(data[:cut])[0] + exchange.receive(data[cut:])[0]
        assert [(ticket, bytes(command.body)) for ticket, command in answers] == [("it", b"body")]


def test_a_request_of_the_peer_is_recognised_by_its_flag() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    asked = sent(exchange.register_request(Command(30), "it", 10))
    check = Command(39, opaque=asked.opaque)
    answers, requests = exchange.receive(serialize_command(check) + serialize_command(asked.reply(0)))
    assert [command.code for command in requests] == [39]
    assert [ticket for ticket, _ in answers] == ["it"]


def test_one_way_requests_expect_no_answer() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    told = sent(exchange.serialize_one_way(Command(15)))
    assert told.is_one_way
    assert exchange.pending_count == 0


def test_late_answers_are_dropped() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    early, late = (
        sent(exchange.register_request(Command(30), name, deadline)) for name, deadline in (("a", 1.0), ("b", 3.0))
    )
    assert exchange.expire_requests(0.9) == []
    assert exchange.expire_requests(2.0) == ["a"]
    answers, _ = exchange.receive(serialize_command(early.reply(0)) + serialize_command(late.reply(0)))
    assert [ticket for ticket, _ in answers] == ["b"]


def test_waiting_requests_are_returned_when_the_connection_ends() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    for name in "abc":
        exchange.register_request(Command(30), name, 1)
    assert exchange.abandon_requests() == ["a", "b", "c"]
    assert exchange.pending_count == 0


def test_request_numbers_wrap_around() -> None:
    exchange: PendingRequests[str] = PendingRequests()
    exchange._next_opaque = 0x7FFFFFFF
    assert [sent(exchange.serialize_one_way(Command(1))).opaque for _ in range(2)] == [0, 1]


def test_frames_beyond_the_limit_are_refused_at_their_length() -> None:
    exchange: PendingRequests[str] = PendingRequests(frame_limit_bytes=100)
    with pytest.raises(LayoutError, match="length"):
        exchange.receive((200).to_bytes(4, "big"))
