"""Offsets set at a real RocketMQ: the messages that the group then receives, and offsets set by RocketMQ's mqadmin."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.offsets.command import main
from tests.servers.jars import java_command
from tests.servers.java_programs import CLIENT, JVM, programs_class_path, run_java
from tests.servers.mqadmin import mqadmin
from tests.servers.process import ServerProcess
from tests.servers.rocketmq import VERSIONS, RocketMQ
from tests.support.served_topics import ServedTopic, offset_client_of

TOPIC, QUEUES, EARLY, LATE = "Orders", 2, 10, 7
GROUPS = ("Again", "ByCommand", "Online")


@pytest.fixture(
    scope="module",
    params=[VERSIONS[0], pytest.param(VERSIONS[1], marks=pytest.mark.long("offsets with RocketMQ 4.9, too"))],
)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQ]:
    """A broker."""
    with RocketMQ(request.param, tmp_path_factory.mktemp("offsets-")) as running:
        yield running


@pytest.fixture(scope="module")
def served(servers: RocketMQ, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedTopic]:
    """A topic with messages; two groups have consumed all of them."""
    lake = Lake(str(tmp_path_factory.mktemp("lake-") / "lake"))
    client = offset_client_of(servers.name_server_address)
    with client.admin, client.puller:
        made = ServedTopic(servers.name_server_address, servers.store, lake, TOPIC, client)
        made.make(QUEUES, *GROUPS)
        made.send(EARLY, "early")
        yield made


@pytest.fixture(scope="module")
def since(served: ServedTopic) -> str:
    """The time of the first of some later messages, which are archived, too."""
    time = served.send(LATE, "late").isoformat()
    for group in GROUPS:
        served.commit(group, EARLY + LATE)
    served.keep()
    return time


def place(served: ServedTopic, group: str) -> list[str]:
    return ["--lake", served.lake.root, "--namesrv", served.name_servers, "--group", group]


def test_a_group_receives_only_messages_stored_since_the_time(
    servers: RocketMQ, served: ServedTopic, since: str
) -> None:
    asked = [*place(served, "Again"), "--consume-from", since, "--apply", "--yes", "--quiet"]
    assert main(asked) == 0
    assert served.offsets("Again") == [EARLY] * QUEUES
    expected = LATE * QUEUES
    arguments = [served.name_servers, "concurrent", TOPIC, "Again", "*", "1", str(expected), "60"]
    rows = run_java(servers, "Consumers", arguments)
    keys = {
        message.unique_key: " ".join(message.keys or ()) for queue in served.queues for message in served.read(queue)
    }
    assert Counter(keys[row["unique_key"]] for row in rows) == {f"late{number}": QUEUES for number in range(LATE)}


def run_commands(served: ServedTopic, folder: Path, capsys: pytest.CaptureFixture[str], *asked: str) -> None:
    """Print commands of mqadmin, and run them."""
    capsys.readouterr()
    assert main([*place(served, "ByCommand"), *asked, "--mqadmin", "--quiet"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    mqadmin(VERSIONS[0], folder, *(shlex.split(line)[1:] for line in lines))


@pytest.mark.long("the printed commands have unit tests; a group receives from offsets that are set each time")
def test_rocketmqs_own_commands_set_the_same_offsets(
    servers: RocketMQ, served: ServedTopic, since: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if servers.version != VERSIONS[0]:
        assert main([*place(served, "ByCommand"), "--consume-from", since, "--mqadmin"]) == 2
        assert "its mqadmin cannot set the offset of a single queue" in capsys.readouterr().err
        return
    first, second = served.queues
    served.client.admin.offsets.commit(first, "ByCommand", 0)
    served.client.admin.offsets.commit(second, "ByCommand", 3)
    then = served.take_snapshot().isoformat()
    served.commit("ByCommand", EARLY + LATE)
    run_commands(served, tmp_path, capsys, "--consume-from", since)
    assert served.offsets("ByCommand") == [EARLY] * QUEUES
    run_commands(served, tmp_path, capsys, "--at", then)  # resets one queue to its beginning, which -o 0 does not do
    assert served.offsets("ByCommand") == [0, 3]
    # The broker now ignores commits of this group until one of its clients pulls.
    assert main([*place(served, "ByCommand"), "--consume-from", since, "--apply", "--yes", "--quiet"]) == 0
    assert served.offsets("ByCommand") == [EARLY] * QUEUES


@pytest.mark.long("a client that is sent to a new offset waits for ten seconds first")
def test_a_broker_that_supports_it_moves_connected_clients_to_the_offsets(
    servers: RocketMQ, served: ServedTopic, since: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if servers.version != VERSIONS[0]:
        return
    served.commit("Online", EARLY + LATE - 1)
    command = [java_command(), *JVM, *CLIENT, f"-Duser.home={tmp_path}", "-cp", programs_class_path(servers.version)]
    command += ["Consumers", served.name_servers, "forever", TOPIC, "Online", "*", "1", "1000000", "60"]
    consumer = ServerProcess("consumer", command, tmp_path / "consumer.log")
    try:
        consumer.wait_until(lambda: consumer.output().count('"queue_id"') == QUEUES, 60)
        asked = [*place(served, "Online"), "--consume-from", since, "--apply", "--yes"]
        assert main(asked) == 4
        assert "has 1 client" in capsys.readouterr().err
        assert main([*asked, "--online"]) == 0
        consumer.wait_until(lambda: consumer.output().count('"queue_id"') == QUEUES * (1 + LATE), 60)
    finally:
        consumer.kill()
