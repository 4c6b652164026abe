"""Dead letters of a real RocketMQ and its consumer, sent again and followed until each is consumed or dead again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from commitlake.connectors.rocketmq import Admin, ClientOptions, OutgoingMessage, Producer, Puller
from commitlake.jobs.archive.command import main as archive
from commitlake.jobs.dlq.command import main as dlq
from commitlake.schemas.errors import ExitCode
from tests.servers.java_programs import Row, fail_every_message, run_java
from tests.servers.rocketmq import BrokerOptions, RocketMQ
from tests.support.topic_reading import make_topic, read_all

TOPIC, GROUP = "Payments", "billing"
KEYS = [f"order-{number}" for number in range(4)]
ALWAYS_FAILS, FAILS_ONCE = KEYS[0], KEYS[1]
OPTIONS = BrokerOptions(message_delay_level="1s 1s 1s 1s", extra={"flushConsumerOffsetInterval": 500})
"""Retries take the levels from 3 on."""


class Place(NamedTuple):
    """A broker, and the lake of its store."""

    servers: RocketMQ
    lake: str

    def archive(self) -> None:
        """Archive new messages."""
        quick = ["--no-quality", "--no-keys", "--local", "--quiet"]
        store = ["--store", str(self.servers.store), "--broker", "broker-a"]
        assert archive([*store, "--lake", self.lake, *quick]) == 0

    def dlq(self, *arguments: str) -> int:
        """Run `commitlake dlq`."""
        return dlq([*arguments, "--lake", self.lake, "--quiet"])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Four messages that a group of Java's has given up, archived."""
    folder = tmp_path_factory.mktemp("redriven")
    with ExitStack() as running:
        servers = RocketMQ("5.5.0", folder / "rocketmq", options=OPTIONS).start()
        running.callback(servers.kill)  # nothing that it would write on a clean stop is needed
        options = ClientOptions(servers.name_server_address)
        with Admin(options) as admin, Producer("Shop", options) as producer:
            make_topic(admin, TOPIC, 2)
            for key in KEYS:
                producer.send(OutgoingMessage(TOPIC, json.dumps({"order": key}).encode(), keys=(key,)))
        fail_every_message(servers, TOPIC, GROUP, max_reconsume_times=0)
        made = Place(servers, str(folder / "lake"))
        made.archive()
        yield made


@pytest.fixture(scope="module")
def redriven(place: Place) -> list[Row]:
    """All messages the group received after all were sent again: one always fails, one fails once."""
    target = ["--namesrv", place.servers.name_server_address, "--yes"]
    assert place.dlq("redrive", "--group", GROUP, *target) == ExitCode.OK
    arguments = [place.servers.name_server_address, TOPIC, GROUP, "1", ALWAYS_FAILS, FAILS_ONCE, "3", "5", "60"]
    return run_java(place.servers, "PartlyFailingConsumer", arguments)


def shown(place: Place, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = place.dlq(*arguments, "--format", "json")
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def replay_id(row: Row) -> str:
    return str(row["properties"]["REPLAY_ID"])


def test_each_delivery_names_its_dead_letter(redriven: list[Row]) -> None:
    tries = sorted((row["key"], row["reconsume_times"], row["failed"]) for row in redriven)
    assert tries == [
        (ALWAYS_FAILS, 0, True),
        (ALWAYS_FAILS, 1, True),
        (FAILS_ONCE, 0, True),
        (FAILS_ONCE, 1, False),
        (KEYS[2], 0, False),
        (KEYS[3], 0, False),
    ]
    for row in redriven:
        named = row["properties"]
        assert named["ORIGIN_TOPIC"] == f"%DLQ%{GROUP}"
        assert named["ORIGIN_BROKER"] == "broker-a"
        assert row["topic"] == TOPIC
    places = {(row["key"], row["properties"]["ORIGIN_PHYSICAL_OFFSET"]) for row in redriven}
    assert len(places) == len(KEYS)


def test_retried_copies_keep_the_properties_of_the_replay(place: Place, redriven: list[Row]) -> None:
    with Puller("Onlooker", ClientOptions(place.servers.name_server_address)) as puller:
        retries = [message for message in read_all(puller, f"%RETRY%{GROUP}", 2) if "REPLAY_ID" in message.properties]
        letters = read_all(puller, f"%DLQ%{GROUP}", len(KEYS) + 1)
    assert sorted((message.properties["KEYS"], message.reconsume_times) for message in retries) == [
        (ALWAYS_FAILS, 1),
        (FAILS_ONCE, 1),
    ]
    (dead,) = [message for message in letters if "REPLAY_ID" in message.properties]
    assert (dead.properties["KEYS"], dead.reconsume_times) == (ALWAYS_FAILS, 2)
    for message in (*retries, dead):
        assert message.properties["REPLAY_ID"] == replay_id(redriven[0])
        assert {"ORIGIN_MSG_ID", "ORIGIN_BROKER", "ORIGIN_PHYSICAL_OFFSET"} <= set(message.properties)
        assert message.properties["RETRY_TOPIC"] == TOPIC


def test_the_outcome_matches_what_the_consumer_did(
    place: Place, redriven: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = shown(place, capsys, "outcome", replay_id(redriven[0]), "--follow", "--timeout", "60s")
    assert code == ExitCode.DAMAGE
    (group,) = found["groups"]
    assert (group["group"], group["consumed"], group["dead"], group["waiting"]) == (GROUP, 3, 1, 0)
    assert group["retried"] == 2
    assert group["cautions"] == []
    (dead,) = group["samples"]
    assert dead["detail"] == f"offset 4 of %DLQ%{GROUP}"


def test_dead_letters_that_died_again_are_marked_and_skipped(
    place: Place, redriven: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    place.archive()
    _, found = shown(place, capsys, "--group", GROUP)
    assert {(cause["attempts"], cause["letters"], cause["again"]) for cause in found["causes"]} == {
        (1, 4, 0),
        (2, 1, 1),
    }
    assert {cause["shape"] for cause in found["causes"]} == {"order:string"}
    target = ["--namesrv", place.servers.name_server_address, "--yes"]
    assert place.dlq("redrive", "--group", GROUP, *target) == ExitCode.OK
    said = capsys.readouterr().err
    assert "1 dead letter is skipped: dead again after a replay" in said
    assert "4 dead letters were sent before, by replay" in said
    assert "no message matches" in said
