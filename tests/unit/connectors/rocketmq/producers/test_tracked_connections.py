"""Connections whose end at the broker is known: what is closed here counts only when the broker says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, Producer
from commitlake.connectors.rocketmq.errors import RefusedError, UnreachableError
from commitlake.connectors.rocketmq.producers import tracked_connections
from commitlake.connectors.rocketmq.producers.tracked_connections import TrackedConnections
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command
from tests.support.live_brokers import LiveBroker, LiveCluster
from tests.support.waiting import wait_until

LIST = RequestCode.GET_PRODUCER_CONNECTION_LIST


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with LiveCluster(tmp_path) as made:
        yield made


@pytest.fixture
def broker(cluster: LiveCluster) -> LiveBroker:
    return cluster.brokers["broker-a"]


@pytest.fixture
def clients(cluster: LiveCluster) -> Iterator[tuple[Producer, Admin]]:
    options = ClientOptions(cluster.address, request_seconds=10)
    with Producer("Replays", options) as producer, Admin(options) as admin:
        yield producer, admin


def tracked(
    clients: tuple[Producer, Admin], owner: str = "R1", run: str = "", share: str = "", **others: Any
) -> TrackedConnections:
    clock = iter(range(1000)).__next__
    return TrackedConnections(*clients, owner, sleep=lambda _: None, clock=clock, run=run, share=share, **others)


def settles(connections: TrackedConnections) -> bool:
    try:
        connections.wait_for_earlier_connections("broker-a")
    except UnreachableError:
        return False
    return True


def test_a_connection_is_registered_before_anything_is_sent_over_it(
    clients: tuple[Producer, Admin], broker: LiveBroker
) -> None:
    with tracked(clients) as connections:
        first = connections.open("broker-a")
        assert broker.requests[-1] == RequestCode.HEART_BEAT
        assert connections.open("broker-a") is first
        assert [each.client_id for each in clients[1].producer_connections("Replays", "broker-a").connection_set] == [
            first.client_id
        ]
        first.peer.close()
        assert connections.open("broker-a").client_id != first.client_id


def test_a_connection_is_settled_when_the_broker_has_it_no_longer(
    clients: tuple[Producer, Admin], broker: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = broker.dispatcher.on_connection_lost
    with tracked(clients) as connections:
        first = connections.open("broker-a")
        monkeypatch.setattr(broker.dispatcher, "on_connection_lost", lambda _: None)  # its end is on its way
        with pytest.raises(UnreachableError, match=r"1 earlier connections are"):
            connections.wait_for_earlier_connections("broker-a", first)
        assert not first.peer.is_open
        (channel,) = [
            member.channel
            for member in broker.dispatcher.broker.clients.producers["Replays"].values()
            if member.client_id == first.client_id
        ]
        kept(channel)
        connections.wait_for_earlier_connections("broker-a", first)
        assert first.is_settled


def test_earlier_processes_with_the_same_work_are_waited_for_and_others_are_not(
    clients: tuple[Producer, Admin],
) -> None:
    with tracked(clients) as mine, tracked(clients, "R10") as other:
        other.open("broker-a")
        with tracked(clients) as earlier:
            earlier.open("broker-a")
            assert not settles(mine)
            assert settles(other)
        wait_until(lambda: settles(mine), 10)


def test_a_share_waits_for_its_own_and_for_earlier_runs_and_not_for_the_other_shares_of_its_run(
    clients: tuple[Producer, Admin],
) -> None:
    with tracked(clients, run="2", share="1") as mine:
        for other, run, share in (("R1", "2", "0"), ("R1", "2", "11"), ("R12", "2", "1"), ("R10", "", "")):
            with tracked(clients, other, run, share) as connections:
                connections.open("broker-a")
                assert settles(mine)
        for run, share in (("2", "1"), ("1", "1"), ("1", "0"), ("22", "0"), ("", "")):
            wait_until(lambda: settles(mine), 10)
            with tracked(clients, "R1", run, share) as connections:
                connections.open("broker-a")
                assert not settles(mine)
        with tracked(clients) as alone:
            assert not settles(alone)  # a process that sends alone waits for all shares


def test_nothing_is_sent_over_a_new_connection_of_a_process_that_was_replaced(
    clients: tuple[Producer, Admin], broker: LiveBroker
) -> None:
    is_replaced = [False]

    def check_owner() -> None:
        assert broker.requests[-1] == RequestCode.HEART_BEAT
        if is_replaced[0]:
            raise ValueError("replaced")

    with tracked(clients, check_owner=check_owner) as connections:
        first = connections.open("broker-a")
        is_replaced[0] = True
        assert connections.open("broker-a") is first
        first.peer.close()
        for _ in range(2):
            with pytest.raises(ValueError, match="replaced"):
                connections.open("broker-a")
    listed = clients[1].producer_connections
    with tracked(clients, "R2") as other:
        own = other.open("broker-a").client_id
        wait_until(lambda: [each.client_id for each in listed("Replays", "broker-a").connection_set] == [own], 10)


def test_a_request_that_waits_for_a_thread_is_waited_for(clients: tuple[Producer, Admin], broker: LiveBroker) -> None:
    def busy(_: Command, answer: Command) -> Command:
        return replace(
            answer,
            body=bytes(answer.body).replace(
                b'"sendThreadPoolQueueHeadWaitTimeMills":"0"', b'"sendThreadPoolQueueHeadWaitTimeMills":"9000"'
            ),
        )

    broker.lies[RequestCode.GET_BROKER_RUNTIME_INFO] = busy
    with tracked(clients) as connections, pytest.raises(UnreachableError, match="one has waited for 9000 ms"):
        connections.wait_for_earlier_connections("broker-a")


def test_a_broker_that_does_not_list_this_connection_proves_nothing(
    clients: tuple[Producer, Admin], broker: LiveBroker
) -> None:
    with tracked(clients) as connections:
        broker.lies[LIST] = lambda _, answer: replace(answer, body=b'{"connectionSet":[]}')
        with pytest.raises(UnreachableError, match="group Replays that the broker lists, found only 0 others"):
            connections.wait_for_earlier_connections("broker-a")
        group = "the producer group[Replays] not exist"
        broker.lies[LIST] = lambda request, _: request.reply(ResponseCode.SYSTEM_ERROR, remark=group)
        with pytest.raises(UnreachableError, match="found only 0 others"):
            connections.wait_for_earlier_connections("broker-a")
        broker.lies[LIST] = lambda request, _: request.reply(ResponseCode.NO_PERMISSION, remark="no")
        with pytest.raises(RefusedError):
            connections.wait_for_earlier_connections("broker-a")


def test_open_connections_stay_registered(
    clients: tuple[Producer, Admin], broker: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked_connections, "HEARTBEAT_SECONDS", 0.01)
    with tracked(clients) as connections:
        connections.open("broker-a")
        wait_until(lambda: broker.requests.count(RequestCode.HEART_BEAT) > 2, 10)
