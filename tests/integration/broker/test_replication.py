"""A master and a slave as processes: equal logs after kills; requests that a slave answers or refuses."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq.errors import RefusedError
from commitlake.schemas.remoting.admin_headers import CreateTopicRequest
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.frames import Command, parse_command, serialize_command
from commitlake.schemas.remoting.headers import OffsetResponse, QueueRequest, UpdateConsumerOffsetRequest
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.statistics_bodies import ConsumerOffsetTable
from commitlake.schemas.remoting.topic_and_group_configs import (
    SubscriptionGroupConfig,
    SubscriptionGroups,
    TopicConfigs,
)
from tests.servers.remoting import ask, max_offset
from tests.support.acknowledged_sends import Producer
from tests.support.brokers import pull_fields, records, send_fields
from tests.support.kills import kill_count
from tests.support.replicas import MemberLite, log_files, master_lite, slave_lite, wait_until_same
from tests.support.waiting import let_pass, wait_until

KILLS = kill_count(1, share=5)
PATIENT = ("--slave-timeout", "5s")
"""Longer than the default: on a busy machine, a slave may need some seconds for an answer."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[MemberLite, MemberLite]]:
    """A master and its slave."""
    with ExitStack() as running:
        master = master_lite(tmp_path / "master").start()
        running.callback(master.kill)
        slave = slave_lite(tmp_path / "slave", master.name_server_address)
        slave.start()
        running.callback(slave.kill)
        yield master, slave


def queue_files(store: Path) -> dict[str, tuple[int, int]]:
    """Return the number and CRC of the bytes written to each queue file; a file may be made before it is needed."""
    found = {str(path.relative_to(store)): path.read_bytes().rstrip(b"\0") for path in store.glob("consumequeue/*/*/*")}
    return {name: (len(data), zlib.crc32(data)) for name, data in sorted(found.items()) if data}


def wait_until_queues_same(master: Path, slave: Path) -> None:
    """Wait until a slave's queues equal the master's."""
    with suppress(TimeoutError):
        wait_until(lambda: queue_files(slave) == queue_files(master))
    assert queue_files(slave) == queue_files(master)


def send(address: str, number: int = 0, topic: str = "orders", body: bytes = b"x" * 300, **properties: str) -> Command:
    """Send one message, and return the answer with any code."""
    host, _, port = address.rpartition(":")
    known = {"UNIQ_KEY": f"{number:032d}", **properties}
    fields = {key: str(value) for key, value in send_fields(topic, known, e=number % 4).items()}
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(serialize_command(Command(RequestCode.SEND_MESSAGE_V2, fields, body, opaque=number)))
        buffer = b""
        while (parsed := parse_command(buffer)) is None:
            data = connection.recv(1 << 16)
            assert data
            buffer += data
    return parsed[0]


def send_until(broker: MemberLite, segments: int, name: str) -> dict[str, str]:
    """Send from three producers until a broker has some more segments; return the acknowledged messages."""
    segments += len(log_files(broker.store))
    producers = [Producer(broker.broker_address, f"{name}-{number}") for number in range(3)]
    for producer in producers:
        producer.start()
    wait_until(lambda: len(log_files(broker.store)) >= segments)
    acknowledged: dict[str, str] = {}
    for producer in producers:
        producer._socket.shutdown(socket.SHUT_RDWR)
        producer.join()
        acknowledged |= producer.acknowledged
    return acknowledged


def test_a_slave_follows_while_messages_arrive(cluster: tuple[MemberLite, MemberLite]) -> None:
    master, slave = cluster
    assert send(master.broker_address).code == ResponseCode.SUCCESS
    wait_until_same(master.store, slave.store)
    acknowledged = send_until(master, 2, "busy")
    wait_until_same(master.store, slave.store)
    assert len(log_files(slave.store)) > 2
    for queue_id in range(4):
        assert max_offset(slave.broker_address, "orders", queue_id) == max_offset(
            master.broker_address, "orders", queue_id
        )
    assert sum(max_offset(slave.broker_address, "orders", queue_id) for queue_id in range(4)) >= len(acknowledged) > 0
    wait_until_queues_same(master.store, slave.store)


def test_a_slave_that_joins_late_begins_with_the_masters_last_segment(tmp_path: Path) -> None:
    master = master_lite(tmp_path / "master").start()
    try:
        send_until(master, 2, "early")
        names = list(log_files(master.store))
        with slave_lite(tmp_path / "slave", master.name_server_address) as slave:
            wait_until_same(master.store, slave.store)
            copied = list(log_files(slave.store))
            assert copied[0] >= names[-1]  # the master may have begun another one meanwhile
            assert copied == list(log_files(master.store))[-len(copied) :]
            low = ask(slave.broker_address, RequestCode.GET_MIN_OFFSET, QueueRequest("orders", 0))
            assert low.header_as(OffsetResponse).offset > 0
    finally:
        master.kill()


@pytest.mark.kills
@pytest.mark.parametrize("seed", range(KILLS))
def test_logs_are_equal_after_master_or_slave_is_killed(cluster: tuple[MemberLite, MemberLite], seed: int) -> None:
    master, slave = cluster
    # A slave that was killed before it had anything would begin with the last segment, and its queues with it.
    assert send(master.broker_address).code == ResponseCode.SUCCESS
    wait_until_same(master.store, slave.store)
    moment = random.Random(seed)
    for turn in range(3):
        sending = threading.Thread(target=send_until_killed, args=(master.broker_address, f"{seed}-{turn}"))
        sending.start()
        let_pass(moment.uniform(0.2, 1.5), "the brokers are killed at any moment")
        slave_too = moment.random() < 0.7
        if slave_too:
            slave.kill()
            let_pass(moment.choice([0, 0.3]), "the master goes on alone, or not")
        master.kill()
        sending.join()
        master.start()
        if slave_too:
            slave.start()
    assert send(master.broker_address, 1).code == ResponseCode.SUCCESS
    wait_until_same(master.store, slave.store)
    wait_until_queues_same(master.store, slave.store)


def send_until_killed(address: str, name: str) -> None:
    """Send until the broker is killed."""
    producer = Producer(address, name)
    producer.start()
    producer.join()


def test_a_sync_master_reports_whether_its_slave_has_the_message(tmp_path: Path) -> None:
    master = master_lite(tmp_path / "master", "--role", "SYNC_MASTER", *PATIENT).start()
    slave = slave_lite(tmp_path / "slave", master.name_server_address)
    try:
        answer = send(master.broker_address, 1)
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert answer.ext_fields["queueOffset"] == "0"
        slave.start()
        wait_until(lambda: send(master.broker_address, 2).code == ResponseCode.SUCCESS)
        # The slave has a message by the time that it is acknowledged.
        known = max_offset(slave.broker_address, "orders", 3)
        assert send(master.broker_address, 3).code == ResponseCode.SUCCESS
        assert max_offset(slave.broker_address, "orders", 3) == known + 1
        os.kill(slave.process.pid, signal.SIGSTOP)
        assert send(master.broker_address, 7).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert send(master.broker_address, 11, WAIT="false").code == ResponseCode.SUCCESS
        os.kill(slave.process.pid, signal.SIGCONT)
        wait_until(lambda: max_offset(slave.broker_address, "orders", 3) == known + 3)
        assert send(master.broker_address, 15).code == ResponseCode.SUCCESS
        slave.kill()
        wait_until(lambda: send(master.broker_address, 19).code == ResponseCode.SLAVE_NOT_AVAILABLE)
    finally:
        slave.kill()
        master.kill()


def test_a_sync_master_with_sync_flush_waits_for_both(tmp_path: Path) -> None:
    master = master_lite(tmp_path / "master", "--role", "SYNC_MASTER", "--flush", "sync", *PATIENT).start()
    slave = slave_lite(tmp_path / "slave", master.name_server_address)
    try:
        slave.start()
        wait_until(lambda: send(master.broker_address, 1).code == ResponseCode.SUCCESS)
        acknowledged = send_until(master, 1, "both")
        assert len(acknowledged) > 100
        found = sum(max_offset(slave.broker_address, "orders", queue_id) for queue_id in range(4))
        assert found >= len(acknowledged)
    finally:
        slave.kill()
        master.kill()


def test_a_slave_refuses_writes(cluster: tuple[MemberLite, MemberLite]) -> None:
    _, slave = cluster
    answer = send(slave.broker_address, 1)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark == "[REJECTREQUEST]system busy, start flow control for a while"
    create = CreateTopicRequest("new", "TBW102", 4, 4, 6, "SINGLE_TAG")
    with pytest.raises(RefusedError, match="from slave broker, please execute it from master broker"):
        ask(slave.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, create)


def test_a_slave_copies_the_masters_topics_groups_and_offsets(cluster: tuple[MemberLite, MemberLite]) -> None:
    master, slave = cluster
    create = CreateTopicRequest("seven", "TBW102", 7, 7, 6, "SINGLE_TAG")
    ask(master.broker_address, RequestCode.UPDATE_AND_CREATE_TOPIC, create)
    assert send(master.broker_address, 1, "seven").code == ResponseCode.SUCCESS
    readers = serialize_body(SubscriptionGroupConfig("readers"))
    ask(master.broker_address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=readers)
    update = UpdateConsumerOffsetRequest("readers", "seven", 1, 1)
    ask(master.broker_address, RequestCode.UPDATE_CONSUMER_OFFSET, update)

    def known() -> bool:
        topics = ask(slave.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG).body_as(TopicConfigs)
        groups = ask(slave.broker_address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body_as(SubscriptionGroups)
        offsets = ask(slave.broker_address, RequestCode.GET_ALL_CONSUMER_OFFSET).body_as(ConsumerOffsetTable)
        seven = topics.topic_config_table.get("seven")
        return (
            seven is not None
            and seven.read_queue_nums == 7
            and "readers" in groups.subscription_group_table
            and offsets.offset_table.get("seven@readers") == {1: 1}
        )

    wait_until(known)
    assert ask(slave.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG).body_as(TopicConfigs) == ask(
        master.broker_address, RequestCode.GET_ALL_TOPIC_CONFIG
    ).body_as(TopicConfigs)


def test_a_slave_answers_pulls_and_directs_clients_back_to_the_master(cluster: tuple[MemberLite, MemberLite]) -> None:
    master, slave = cluster
    assert send(master.broker_address, 0).code == ResponseCode.SUCCESS
    wait_until_same(master.store, slave.store)
    found = pull(slave.broker_address, 0)
    assert found.code == ResponseCode.SUCCESS
    assert [one.body for one in records(found.body)] == [b"x" * 300]
    assert found.ext_fields["suggestWhichBrokerId"] == "0"
    # A consumer that is further than the slave keeps its place.
    ahead = pull(slave.broker_address, 5)
    assert ahead.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert ahead.ext_fields["nextBeginOffset"] == "5"


def pull(address: str, offset: int) -> Command:
    """Pull once."""
    host, _, port = address.rpartition(":")
    fields = {key: str(value) for key, value in pull_fields("orders", 0, offset).items()}
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(serialize_command(Command(RequestCode.PULL_MESSAGE, fields)))
        buffer = b""
        while (parsed := parse_command(buffer)) is None:
            data = connection.recv(1 << 16)
            assert data
            buffer += data
    return parsed[0]


@pytest.mark.parametrize("lie", [1 << 40, -5, 3])
def test_a_slave_that_reports_a_false_offset_is_disconnected(cluster: tuple[MemberLite, MemberLite], lie: int) -> None:
    master, slave = cluster
    assert send(master.broker_address, 0).code == ResponseCode.SUCCESS
    place = master._options[master._options.index("--ha-listen") + 1].rpartition(":")
    with socket.create_connection((place[0], int(place[2])), timeout=30) as liar:
        liar.sendall((0).to_bytes(8, "big") + lie.to_bytes(8, "big", signed=True))
        received = b""
        try:
            while data := liar.recv(1 << 16):
                received += data
        except ConnectionResetError:
            pass
        assert len(received) < 1 << 20
    # The others do not notice.
    assert send(master.broker_address, 1).code == ResponseCode.SUCCESS
    wait_until_same(master.store, slave.store)
