"""RocketMQ's slave of our master, our slave of RocketMQ's master, and consumers on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.topic_and_group_configs import TopicConfigs
from tests.servers.java_programs import run_java
from tests.servers.remoting import ask, max_offset
from tests.servers.rocketmq import SMALL_FILES, RocketMQ
from tests.support.replicas import MemberLite, master_lite, slave_lite, wait_until_same
from tests.support.waiting import wait_until

QUEUES = 4
PROMPT = {"haSendHeartbeatInterval": 500}
RESTARTED = pytest.mark.parametrize(
    "is_restarted",
    [False, pytest.param(True, marks=pytest.mark.long("our own slave is killed and started again each time"))],
    ids=["runs on", "killed and started again"],
)
KINDS = ("volume", "plain", "batch", "ordered", "tags", "big")


@pytest.fixture
def running() -> Iterator[ExitStack]:
    """A stack that kills all started processes at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def names(rocketmq_version: str, tmp_path: Path, running: ExitStack) -> RocketMQ:
    """A real name server, which outlives masters."""
    server = RocketMQ(rocketmq_version, tmp_path / "names")
    server.start_name_server()
    running.callback(server.kill)
    return server


def real_broker(names: RocketMQ, folder: Path, running: ExitStack, **settings: object) -> RocketMQ:
    """Start a real broker at the name server of another."""
    options = replace(SMALL_FILES, extra={**PROMPT, **settings})
    broker = RocketMQ(names.version, folder, options=options)
    broker._name_server_port = names._name_server_port
    running.callback(broker.kill)
    broker.start_broker()
    return broker


def check_consumers_read_all(names: RocketMQ, sent: list[dict[str, str]], kill_master: Callable[[], None]) -> None:
    """Check that a consumer gets every message of the volume from the slave alone."""
    kill_master()
    wanted = {row["unique_key"] for row in sent if row["kind"] == "volume"}
    arguments = [names.name_server_address, "concurrent", "EveryVolume", "late", "*", "1", str(len(wanted)), "150"]
    assert {row["unique_key"] for row in run_java(names.version, "Consumers", arguments)} == wanted


@pytest.mark.long("it waits a minute for the slave to ask for topics; our slave follows a real master each time")
@RESTARTED
def test_a_real_slave_copies_our_masters_store(
    names: RocketMQ, tmp_path: Path, running: ExitStack, is_restarted: bool
) -> None:
    master = master_lite(tmp_path / "master", name_server=names.name_server_address).start()
    running.callback(master.kill)
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
    slave = real_broker(names, tmp_path / "slave", running, **settings)
    # A slave that comes when there are several segments gets only the last one.
    run_java(names.version, "ProduceEveryKind", [names.name_server_address, "plain"])
    wait_until_same(master.store, slave.store)
    sent = run_java(names.version, "ProduceEveryKind", [names.name_server_address, *KINDS])
    wait_until_same(master.store, slave.store)
    for queue_id in range(QUEUES):
        expected = max_offset(master.broker_address, "EveryVolume", queue_id)
        wait_until(lambda queue_id=queue_id, expected=expected: (  # type: ignore[misc]
            max_offset(slave.broker_address, "EveryVolume", queue_id) == expected
        ))  # fmt: skip
    if is_restarted:
        slave.kill_broker()
        sent += run_java(names.version, "ProduceEveryKind", [names.name_server_address, "volume"])
        slave.start_broker()
        wait_until_same(master.store, slave.store)

    def knows_topics() -> bool:
        topics = ask(slave.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG).body_as(TopicConfigs).topic_config_table
        return "EveryVolume" in topics

    wait_until(knows_topics, 90)
    check_consumers_read_all(names, sent, master.kill)


def test_our_slave_of_a_real_master(names: RocketMQ, tmp_path: Path, running: ExitStack) -> None:
    master = real_broker(names, tmp_path / "master", running)
    slave = slave_lite(tmp_path / "slave", names.name_server_address).start()
    running.callback(slave.kill)
    run_java(names.version, "ProduceEveryKind", [names.name_server_address, "plain"])
    wait_until_same(master.store, slave.store)
    sent = run_java(names.version, "ProduceEveryKind", [names.name_server_address, *KINDS])
    wait_until_same(master.store, slave.store)
    slave.kill()
    sent += run_java(names.version, "ProduceEveryKind", [names.name_server_address, "volume"])
    slave.start()
    wait_until_same(master.store, slave.store)

    def topics_of(server: RocketMQ | MemberLite) -> set[str]:
        answer = ask(server.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG)
        return set(answer.body_as(TopicConfigs).topic_config_table)

    wait_until(lambda: topics_of(slave) == topics_of(master))
    check_consumers_read_all(names, sent, master.kill_broker)


@pytest.mark.long("our slave follows a real master each time")
def test_a_real_sync_master_waits_for_our_slave(names: RocketMQ, tmp_path: Path, running: ExitStack) -> None:
    master = real_broker(names, tmp_path / "master", running, brokerRole="SYNC_MASTER", inSyncReplicas=2)
    slave = slave_lite(tmp_path / "slave", names.name_server_address).start()
    running.callback(slave.kill)
    run_java(names.version, "ProduceEveryKind", [names.name_server_address, "plain"])
    wait_until_same(master.store, slave.store)
    sent = run_java(names.version, "ProduceEveryKind", [names.name_server_address, "volume"])
    # The slave has the last message by the time that it is acknowledged.
    found = sum(max_offset(slave.broker_address, "EveryVolume", queue_id) for queue_id in range(QUEUES))
    assert found == len(sent)
    assert {row["status"] for row in sent if "status" in row} <= {"SEND_OK"}
