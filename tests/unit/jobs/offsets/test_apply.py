"""Tests of `commitlake offsets --namesrv` with broker_lite: its newest offsets, setting offsets, and commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.rocketmq import ClientOptions
from commitlake.connectors.rocketmq.network import Network
from commitlake.jobs.offsets.command import main
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.heartbeats import ConsumerData, Heartbeat, SubscriptionData
from commitlake.schemas.remoting.json_fields import serialize_body
from tests.servers.broker_lite import BrokerLite
from tests.support.served_topics import ServedTopic, offset_client_of
from tests.support.topic_reading import wait_for

GROUP, ONLINE = "billing", "shipping"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerLite]:
    """A broker in its own process."""
    with BrokerLite(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def served(broker: BrokerLite, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedTopic]:
    """Two queues with five archived messages each, of which the group has consumed two."""
    lake = Lake(str(tmp_path_factory.mktemp("lake") / "lake"))
    client = offset_client_of(broker.name_server_address)
    with client.admin, client.puller:
        made = ServedTopic(broker.name_server_address, broker.store, lake, "Orders", client)
        made.make(2, GROUP, ONLINE)
        made.send(5)
        made.commit(GROUP, 2)
        made.keep()
        yield made


@pytest.fixture(scope="module")
def since(served: ServedTopic) -> dict[str, str]:
    """Times before five archived messages, and before three that are not archived."""
    archived = served.send(5).isoformat()
    served.keep()
    return {"archived": archived, "new": served.send(3).isoformat()}


def run(served: ServedTopic, *arguments: str, group: str = GROUP) -> int:
    place = ["--lake", served.lake.root, "--namesrv", served.name_servers, "--group", group]
    return int(main([*place, *arguments]))


def rows_of(served: ServedTopic, capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> list[Any]:
    capsys.readouterr()
    assert run(served, *arguments, "--json", "--quiet") == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_offsets_after_the_end_of_the_archive_come_from_the_broker(
    served: ServedTopic, since: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(served, capsys, "--consume-from", since["archived"])
    assert [(row["queue_id"], row["offset"], row["offset_max"]) for row in rows] == [(0, 5, 5), (1, 5, 5)]
    assert [(row["messages_min"], row["messages_max"], row["end"]) for row in rows] == [(0, 8, 13)] * 2
    rows = rows_of(served, capsys, "--consume-from", since["new"])
    assert [(row["offset"], row["offset_max"], row["notes"]) for row in rows] == [(10, 10, ["from the broker"])] * 2
    assert [row["messages_max"] for row in rows] == [3, 3]


def test_offsets_are_set_after_a_confirmation(
    served: ServedTopic, since: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    served.commit(GROUP, 2)
    asked = ("--consume-from", since["archived"], "--apply")
    assert run(served, *asked) == 2
    assert "2 offsets of billing on broker-a would be set, but there is no terminal" in capsys.readouterr().err
    assert served.offsets(GROUP) == [2, 2]
    assert run(served, *asked, "--yes") == 0
    assert "Orders, queue 1 of broker-a: 2 before, 5 now" in capsys.readouterr().err
    assert served.offsets(GROUP) == [5, 5]
    assert run(served, *asked) == 0  # no offset is left to set, so no confirmation is needed
    assert "the offsets of billing already have these values" in capsys.readouterr().err


def test_a_past_offset_is_restored(
    served: ServedTopic, since: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    served.commit(GROUP, 9)
    at = served.take_snapshot().isoformat()
    served.commit(GROUP, 13)
    rows = rows_of(served, capsys, "--at", at, "--apply", "--yes")
    assert [(row["offset"], row["current"]) for row in rows] == [(9, 13), (9, 13)]
    assert served.offsets(GROUP) == [9, 9]


def test_a_group_with_clients_is_refused_unless_the_broker_resets_them(
    served: ServedTopic, broker: BrokerLite, since: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    served.commit(ONLINE, 2)
    asked = ("--topic", "Orders", "--apply", "--yes", "--consume-from")
    network = Network(ClientOptions(served.name_servers))
    try:
        data = ConsumerData(ONLINE, subscription_data_set=(SubscriptionData("Orders"),))
        beat = Heartbeat("one-client", (), (data,))
        network.send_and_wait(broker.broker_address, RequestCode.HEART_BEAT, None, serialize_body(beat))
        assert run(served, *asked, since["archived"], group=ONLINE) == 4
        assert "the group shipping has 1 client (one-client)" in capsys.readouterr().err
        assert served.offsets(ONLINE) == [2, 2]
        assert run(served, *asked, since["archived"], "--online", group=ONLINE) == 0
        assert served.offsets(ONLINE) == [5, 5]
    finally:
        network.close()
    wait_for(lambda: served.client.admin.consumer_ids(ONLINE, "broker-a"), lambda clients: not clients)
    # The client left before its pull was redirected: the broker refuses commits until then.
    assert run(served, *asked, since["new"], group=ONLINE) == 0
    assert served.offsets(ONLINE) == [10, 10]


def test_a_group_that_the_broker_does_not_know_is_refused(
    served: ServedTopic, since: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--consume-from", since["archived"], "--topic", "Orders", "--apply", "--yes")
    assert run(served, *asked, group="biling") == 4
    assert "has no group 'biling', so no offset was set. Did you mean 'billing'?" in capsys.readouterr().err


def test_commands_of_mqadmin_name_the_broker_the_queue_and_the_offset(
    served: ServedTopic, broker: BrokerLite, since: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    served.commit(GROUP, 2)
    assert run(served, "--consume-from", since["archived"], "--mqadmin", "--quiet") == 0
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    base = ["mqadmin", "resetOffsetByTime", "-n", served.name_servers, "-g", GROUP, "-t", "Orders", "-s", "now"]
    assert lines == [[*base, "-b", broker.broker_address, "-q", str(queue), "-o", "5"] for queue in (0, 1)]


def test_a_cluster_without_the_archived_broker_is_refused(
    served: ServedTopic, since: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerLite(tmp_path, options=["--broker", "broker-b"]) as other:
        place = ["--lake", served.lake.root, "--namesrv", other.name_server_address, "--group", GROUP]
        assert main([*place, "--consume-from", since["archived"]]) == 2
    assert "the name server has no broker 'broker-a'. Did you mean 'broker-b'?" in capsys.readouterr().err


def test_offsets_of_recreated_queues_are_not_set(served: ServedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    """This test must be the last one: it deletes the topic and creates it again."""
    served.commit(GROUP, 5)
    at = served.take_snapshot().isoformat()
    asked = ("--at", at, "--apply", "--yes")
    served.client.admin.delete_topic("Orders")
    (row, _) = rows_of(served, capsys, *asked, code=3)
    assert "no broker has the topic Orders: it was deleted" in row["problem"]
    served.make(1)
    first, second = rows_of(served, capsys, *asked, code=3)
    assert "offset 5 is beyond the queue's end, 0" in first["problem"]
    assert "the topic now has only 1 queue on the broker" in second["problem"]
    served.send(13)
    first, _ = rows_of(served, capsys, *asked, code=3)
    assert "at offset 5 the source has a message that was stored at" in first["problem"]
    assert served.client.admin.offsets.committed(served.queues[0], GROUP) != 5
