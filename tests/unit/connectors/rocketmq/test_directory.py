"""Brokers given by their addresses: routes and reads work without a name server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, NoRouteError, OutgoingMessage, Producer, ProtocolError
from commitlake.schemas.errors import UsageError
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import Command, serialize_command
from tests.support.live_brokers import LiveCluster
from tests.support.live_reading import create_topic, offsets, parsed, put, rows


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """Two brokers, of which both have the topic orders, with four messages in each queue."""
    with LiveCluster(tmp_path, ("broker-a", "broker-b")) as running:
        for broker in running.brokers.values():
            create_topic(broker)
            put(broker, 8)
        yield running


def given(cluster: LiveCluster) -> ClientOptions:
    """Return options with the addresses of the brokers, and no name server."""
    return ClientOptions("", brokers=";".join(broker.peer.address for broker in cluster.brokers.values()))


def test_names_and_topics_are_read_from_the_brokers(cluster: LiveCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "register", lambda: pytest.fail("the name server was asked"))
    with Admin(given(cluster)) as admin:
        found = admin.clusters()
        assert {name: broker.master_address for name, broker in found.broker_addr_table.items()} == {
            name: broker.peer.address for name, broker in cluster.brokers.items()
        }
        assert [*found.cluster_addr_table.values()] == [("broker-a", "broker-b")]
        assert "orders" in admin.topics()
        for name in cluster.brokers:
            stats = admin.broker_topic_stats("orders", name)
            assert stats is not None
            assert sum(held.max_offset for held in stats.offset_table.values()) == 8
        with pytest.raises(NoRouteError, match="topic 'nothing': none of the given brokers has this topic"):
            admin.route("nothing")
    with Producer("group", given(cluster)) as producer:
        assert producer.send(OutgoingMessage("orders", b"more")).queue_offset == 4


def test_the_source_reads_from_brokers_given_by_address(cluster: LiveCluster) -> None:
    values = {"brokers": given(cluster).brokers, "topics": "orders", "retrySeconds": "0"}
    assert offsets(rows(parsed(values))) == {0: [0, 1, 2, 3] * 2, 1: [0, 1, 2, 3] * 2}
    with pytest.raises(UsageError, match="options namesrv and brokers: expected only one of them, found both"):
        parsed({**values, "namesrv": "a:1"})
    with pytest.raises(UsageError, match="option brokers: expected an address as host:port, found 'a'"):
        parsed({**values, "brokers": "a"})


def test_an_answer_without_a_name_is_an_error(cluster: LiveCluster) -> None:
    def nameless(request: Command) -> bytes | None:
        return (
            serialize_command(request.reply(0, body=b"x=1\n"))
            if request.code == RequestCode.GET_BROKER_CONFIG
            else None
        )

    cluster.brokers["broker-b"].interfere = nameless
    with (
        Admin(given(cluster)) as admin,
        pytest.raises(ProtocolError, match="expected a broker with a brokerName"),
    ):
        admin.clusters()
