"""Tests of the membership of clients in groups, which ends with their connection."""

from __future__ import annotations

import pytest

from commitlake.broker_lite.broker.clients import Clients
from commitlake.broker_lite.broker.limits import MAX_MEMBERSHIPS_OF_ONE
from commitlake.broker_lite.protocol import Channel
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.errors import CommandError
from commitlake.schemas.remoting.frames import Command
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, ProducerData
from tests.support.brokers import PRODUCER_HOST

REQUEST = Command(RequestCode.HEART_BEAT)
TIMEOUT_MS = 120_000


@pytest.fixture
def clients() -> Clients:
    """Clients without a member."""
    return Clients(TIMEOUT_MS)


def channel() -> Channel:
    """Return a connection."""
    return Channel(PRODUCER_HOST, lambda _: None, lambda: None)


def beat(clients: Clients, by: Channel, client_id: str = "client", now_ms: int = 0) -> set[str]:
    """Send a client's heartbeat, of a producer and a consumer."""
    heartbeat = Heartbeat(client_id, (ProducerData("producers"),), (ConsumerData("consumers"),))
    return clients.register_heartbeat(by, REQUEST, heartbeat, now_ms)


def ids(clients: Clients) -> list[str]:
    """Return the members of the consumers' group, which must be those of the producers' group."""
    found = [member.client_id for member in clients.members("consumers")]
    assert list(clients.producers.get("producers", {})) == found
    return found


def test_clients_of_a_connection_leave_when_it_ends(clients: Clients) -> None:
    first, second = channel(), channel()
    assert beat(clients, first, "one") == {"consumers"}
    assert beat(clients, second, "two") == {"consumers"}
    assert beat(clients, second, "three") == {"consumers"}
    assert beat(clients, first, "one") == set()
    assert clients.remove_connection(second) == {"consumers"}
    assert ids(clients) == ["one"]
    assert clients.remove_connection(second) == set()
    assert clients.remove_connection(first) == {"consumers"}
    assert not clients.consumers
    assert not clients.producers
    assert not clients._memberships


def test_a_client_that_reconnected_stays_when_its_old_connection_ends(clients: Clients) -> None:
    old, new = channel(), channel()
    beat(clients, old)
    assert beat(clients, new) == {"consumers"}
    assert clients.remove_connection(old) == set()
    assert ids(clients) == ["client"]
    assert clients.remove_connection(new) == {"consumers"}
    assert clients._memberships == {}


def test_a_client_that_unregisters_leaves_before_its_connection_ends(clients: Clients) -> None:
    by = channel()
    beat(clients, by)
    assert clients.unregister(by, "client", "producers", "consumers") == {"consumers"}
    assert clients.unregister(by, "client", "producers", "consumers") == set()
    assert ids(clients) == []
    assert clients._memberships == {}


def test_a_connection_cannot_unregister_a_client_of_another_connection(clients: Clients) -> None:
    by, stranger = channel(), channel()
    beat(clients, by)
    assert clients.unregister(stranger, "client", "producers", "consumers") == set()
    beat(clients, stranger, "another")
    assert clients.unregister(stranger, "client", "producers", "consumers") == set()
    assert ids(clients) == ["client", "another"]


def test_a_silent_client_expires(clients: Clients) -> None:
    by = channel()
    beat(clients, by, "silent", now_ms=0)
    beat(clients, by, "loud", now_ms=1)
    assert expire(clients, TIMEOUT_MS) == set()
    assert expire(clients, TIMEOUT_MS + 1) == {"consumers"}
    assert ids(clients) == ["loud"]


def test_many_silent_clients_expire_in_small_steps(clients: Clients) -> None:
    by, returning = channel(), channel()
    groups = tuple(ProducerData(f"group-{number}") for number in range(1000))
    clients.register_heartbeat(by, REQUEST, Heartbeat("client", groups, ()), 0)
    steps = clients.remove_expired_clients(TIMEOUT_MS + 1)
    next(steps)
    assert len(clients.producers) == 900
    clients.register_heartbeat(returning, REQUEST, Heartbeat("client", groups[-1:], ()), TIMEOUT_MS)
    assert len(list(steps)) == 9
    assert list(clients.producers) == ["group-999"]


def expire(clients: Clients, now_ms: int) -> set[str]:
    """Expire silent clients at once."""
    steps = clients.remove_expired_clients(now_ms)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return set(end.value)


def test_groups_of_one_connection_have_a_limit(clients: Clients) -> None:
    by = channel()
    groups = tuple(ProducerData(f"group-{number}") for number in range(MAX_MEMBERSHIPS_OF_ONE))
    clients.register_heartbeat(by, REQUEST, Heartbeat("client", groups, ()), 0)
    clients.register_heartbeat(by, REQUEST, Heartbeat("client", groups, ()), 0)
    with pytest.raises(CommandError, match="groups on one connection: expected at most 4096, found 4097"):
        clients.register_heartbeat(by, REQUEST, Heartbeat("client", (ProducerData("more"),), ()), 0)
    assert "more" not in clients.producers


def test_the_end_of_a_connection_does_not_search_all_groups(clients: Clients) -> None:
    class Groups(dict[str, object]):
        def items(self) -> object:  # type: ignore[override]
            raise AssertionError("all groups were looked at")

    by = channel()
    beat(clients, by)
    clients.producers = Groups(clients.producers)  # type: ignore[assignment]
    clients.consumers = Groups(clients.consumers)  # type: ignore[assignment]
    assert clients.remove_connection(by) == {"consumers"}
