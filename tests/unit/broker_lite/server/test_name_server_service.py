"""Tests of the name server's port: long requests are processed in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from commitlake.broker_lite.nameserver import NameServer
from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.server.name_server_service import NameServerService
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import to_ext_fields
from commitlake.schemas.remoting.frames import FLAG_ONE_WAY, Command
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.name_server_headers import RegisterBrokerRequest
from commitlake.schemas.remoting.topic_and_group_configs import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigs,
)


class Turns:
    """An event loop that does nothing by itself."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        """Keep a call."""
        self.calls.append(call)

    def call_later(self, _delay: float, call: Callable[[], None]) -> None:
        """Keep a call, as if its time had come."""
        self.calls.append(call)


class Client:
    """A connection that keeps the answers sent to it."""

    def __init__(self, port: int) -> None:
        self.answers: list[Command] = []
        reader = FrameReader()
        self.channel = Channel(
            Host.of("10.0.0.1", port), lambda frame: self.answers.extend(reader.feed(frame)), lambda: None
        )


def registration(name: str, opaque: int = 0, flag: int = 0) -> Command:
    """Return a broker's registration with some topics."""
    table = {f"{name}{number}": TopicConfig(f"{name}{number}") for number in range(5)}
    header = RegisterBrokerRequest(name, f"10.0.0.1:{opaque}", "C", "", 0)
    body = serialize_body(RegisterBrokerBody(TopicConfigs(table, DataVersion(1, 1))))
    return Command(RequestCode.REGISTER_BROKER, to_ext_fields(header), body, opaque=opaque, flag=flag)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Make every turn one step long."""
    monkeypatch.setattr("commitlake.broker_lite.broker.slice_scheduler.SLICE_SECONDS", -1)
    return Turns()


@pytest.fixture
def service(turns: Turns) -> NameServerService:
    """A name server without brokers."""
    return NameServerService(NameServer(lambda: 0), cast("asyncio.AbstractEventLoop", turns))


def test_other_clients_are_answered_between_the_steps_of_a_registration(
    service: NameServerService, turns: Turns
) -> None:
    broker, client = Client(1), Client(2)
    service.handle(broker.channel, registration("broker-a", opaque=7))
    service.handle(broker.channel, registration("broker-b", opaque=8, flag=FLAG_ONE_WAY))
    question = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "broker-b4"})
    service.handle(client.channel, question)
    assert [answer.code for answer in client.answers] == [ResponseCode.TOPIC_NOT_EXIST]
    assert not broker.answers
    while turns.calls:
        assert len(turns.calls) == 1
        turns.calls.pop()()
    assert [(answer.code, answer.opaque) for answer in broker.answers] == [(ResponseCode.SUCCESS, 7)]
    service.handle(client.channel, question)
    assert client.answers[-1].code == ResponseCode.SUCCESS


def test_a_broker_that_disconnects_during_its_registration_is_not_registered(
    service: NameServerService, turns: Turns
) -> None:
    broker, client = Client(1), Client(2)
    service.handle(broker.channel, registration("broker-a"))
    broker.channel.on_connection_lost()
    service.on_connection_lost(broker.channel)
    while turns.calls:
        turns.calls.pop()()
    service.handle(client.channel, Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "broker-a0"}))
    assert client.answers[0].code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("failing", "request_"),
    [
        ("register", registration("broker-a", opaque=9)),  # takes several steps
        ("topic_route", Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}, opaque=9)),
    ],
)
def test_a_request_that_fails_unexpectedly_is_answered(
    turns: Turns, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str, request_: Command
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("a mistake of ours")

    name_server = NameServer(lambda: 0)
    monkeypatch.setattr(name_server.routes, failing, fail)
    service = NameServerService(name_server, cast("asyncio.AbstractEventLoop", turns))
    client = Client(1)
    service.handle(client.channel, request_)
    while turns.calls:
        turns.calls.pop()()
    (answer,) = client.answers
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 9)
    assert "a mistake of ours" in str(answer.remark)
    assert "to the name server failed" in caplog.text


@pytest.mark.usefixtures("turns")
def test_waiting_registrations_of_one_connection_have_a_limit(service: NameServerService) -> None:
    broker = Client(1)
    request = registration("broker-a")
    large = Command(request.code, request.ext_fields, bytes(request.body).ljust(16 << 20))
    for _ in range(3):
        service.handle(broker.channel, large)
    assert [answer.code for answer in broker.answers] == [ResponseCode.SYSTEM_BUSY] * 2
