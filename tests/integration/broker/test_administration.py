"""RocketMQ's administration client and its command line, `mqadmin`, against broker_lite."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.broker_lite import BrokerLite
from tests.servers.java_programs import run_java
from tests.servers.mqadmin import mqadmin

TOPIC, GROUP = "EveryVolume", "by-concurrent"
VOLUME = 1500


@pytest.fixture
def used(broker_lite: BrokerLite, client_version: str) -> BrokerLite:
    """A broker with messages that a group has consumed."""
    address = broker_lite.name_server_address
    run_java(client_version, "ProduceEveryKind", [address, "volume"])
    run_java(client_version, "Consumers", [address, "concurrent", TOPIC, GROUP, "*", "1", str(VOLUME), "60"])
    return broker_lite


@pytest.mark.long("mqadmin, which is answered each time, uses this client")
def test_the_administration_client_is_answered(used: BrokerLite, client_version: str) -> None:
    arguments = [used.name_server_address, used.broker_address, TOPIC, GROUP, "Tag0"]
    rows = {row["asked"]: row for row in run_java(client_version, "Administration", arguments)}
    answers = {asked: row["answer"] for asked, row in rows.items()}
    assert answers["clusters"] == "{DefaultCluster=[broker-a]}"
    assert {TOPIC, f"%RETRY%{GROUP}", "TBW102", "RMQ_SYS_TRACE_TOPIC"} <= set(answers["topics"].split(","))
    assert answers["made"] == "3"
    assert answers["topic stats"] == VOLUME
    assert (answers["consume stats"], rows["consume stats"]["lag"]) == (VOLUME, 0)
    assert int(answers["runtime"]) >= VOLUME
    assert answers["broker config"] == "broker-a"
    assert GROUP in answers["groups of topic"].split(",")
    assert answers["time span"] == 4
    assert answers["group configs"] is True
    assert answers["after reset"] == 0
    assert answers["connections"] == "MQBrokerException"
    assert answers["kv"] == "value"
    # This deletes it from a broker only: the name server has it until it is deleted there, too.
    assert answers["deleted"] is True


def test_mqadmin_shows_and_changes_the_broker(used: BrokerLite, client_version: str, tmp_path: Path) -> None:
    servers, broker = ("-n", used.name_server_address), ("-b", used.broker_address)
    asked = (
        ("clusterList",),
        ("topicList",),
        ("topicRoute", "-t", TOPIC),
        ("topicStatus", "-t", TOPIC),
        ("brokerStatus", *broker),
        ("consumerProgress", "-g", GROUP),
        ("updateTopic", "-t", "ByCommand", "-r", "2", "-w", "2", *broker),
        ("topicList",),
        ("updateSubGroup", "-g", "group-by-command", *broker),
        ("getConsumerConfig", "-g", "group-by-command"),
        ("brokerConsumeStats", *broker),
        ("deleteTopic", "-t", "ByCommand", "-c", "DefaultCluster"),
        ("topicList",),
        ("queryMsgByKey", "-t", TOPIC, "-k", "volume-7"),
    )
    expected = ("broker-a", TOPIC, used.broker_address, "broker-a", "putTps", "Diff Total: 0", "success", "ByCommand",
                "success", "group-by-command", f"{TOPIC} ", "success", TOPIC)  # fmt: skip
    *printed, found = mqadmin(client_version, tmp_path, *((*command, *servers) for command in asked))
    assert [
        (command, text) for command, text, words in zip(asked, printed, expected, strict=False) if words not in text
    ] == []
    assert "ByCommand" not in printed[-1]
    assert len(found.splitlines()) >= 2  # a table: its head, and the message


@pytest.mark.long("two more commands; many are answered each time")
@pytest.mark.parametrize("client_version", ["5.5.0"])  # that of 4.9 asks for less
def test_newer_mqadmin_commands_are_answered(used: BrokerLite, client_version: str, tmp_path: Path) -> None:
    servers, broker = ("-n", used.name_server_address), ("-b", used.broker_address)
    folder = tmp_path / "exported"
    export = ("exportMetadata", "-c", "DefaultCluster", "-f", str(folder), *servers)
    mqadmin(client_version, tmp_path, ("producer", *broker, *servers), export)
    exported = (folder / "metadata.json").read_text()
    assert f'"{TOPIC}"' in exported
    assert f'"{GROUP}"' in exported
    assert '"TBW102"' not in exported
