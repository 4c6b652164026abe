"""Brokers that die, and one that wants signatures."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import (
    Admin,
    ClientOptions,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    Puller,
    RefusedError,
    SendStatus,
    UnreachableError,
)
from commitlake.schemas.remoting.signing import Credentials
from tests.servers.process import free_ports
from tests.servers.rocketmq import BrokerOptions, RocketMQ, StartBroker
from tests.support.topic_reading import read_all, wait_for

ACL = """globalWhiteRemoteAddresses: []
accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: true
"""


@pytest.mark.long("two brokers; one that stands still is survived each time")
def test_sends_go_to_another_broker_when_one_dies(
    rocketmq_version: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    first = start_broker(rocketmq_version, tmp_path / "first")
    second = RocketMQ(rocketmq_version, tmp_path / "rocketmq-second", broker_name="broker-b")
    second._name_server_port = first._name_server_port
    try:
        second.start_broker()
        options = ClientOptions(first.name_server_address)
        with Admin(options) as admin, Producer("ClientFaults", options) as producer:
            admin.create_topic("Both", queue_count=4)
            # A broker that was slow at first is left alone for a while.
            wait_for(lambda: producer.send(OutgoingMessage("Both", b"x")).queue.broker_name, "broker-a".__eq__)
            wait_for(lambda: producer.send(OutgoingMessage("Both", b"x")).queue.broker_name, "broker-b".__eq__)
            second.kill_broker()  # the name server still knows it for two minutes
            waiting = [producer.send_async(OutgoingMessage("Both", b"x")) for _ in range(100)]
            results = [send.result() for send in waiting]
            assert {(result.status, result.queue.broker_name) for result in results} == {
                (SendStatus.SEND_OK, "broker-a")
            }
            lone = next(queue for queue in producer.queues("Both") if queue.broker_name == "broker-b")
            with pytest.raises(UnreachableError, match="cannot connect"):
                producer.send(OutgoingMessage("Both", b"x"), queue=lone)
            # It comes back at its place, and is found again.
            second.start_broker()
            assert producer.send(OutgoingMessage("Both", b"x"), queue=lone).queue == lone
    finally:
        second.kill()


def test_a_request_to_a_stopped_broker_times_out(
    rocketmq_version: str, start_broker: StartBroker, tmp_path: Path
) -> None:
    servers = start_broker(rocketmq_version, tmp_path / "store")
    patient = ClientOptions(servers.name_server_address)
    hasty = ClientOptions(servers.name_server_address, request_seconds=1)
    with (
        Producer("ClientStill", patient) as producer,
        Producer("ClientHasty", hasty, ProducerOptions(send_seconds=1)) as hasty_producer,
    ):
        producer.send(OutgoingMessage("Still", b"x"))
        wait_for(lambda: hasty_producer.queues("Still"), bool)
        os.kill(servers.broker.pid, signal.SIGSTOP)
        try:
            with pytest.raises(UnreachableError):
                hasty_producer.send(OutgoingMessage("Still", b"x"))
        finally:
            os.kill(servers.broker.pid, signal.SIGCONT)
        assert producer.send(OutgoingMessage("Still", b"x")).status is SendStatus.SEND_OK


def test_another_name_server_is_used_when_one_is_unreachable(servers: RocketMQ, topic: str) -> None:
    options = ClientOptions(f"127.0.0.1:{free_ports(1)};{servers.name_server_address}")
    with Producer("ClientServers", options) as producer, Puller("ClientServers", options) as puller:
        producer.send(OutgoingMessage(topic, b"x"))
        assert len(read_all(puller, topic, 1)) == 1
    with (
        Admin(ClientOptions(f"127.0.0.1:{free_ports(1)}")) as admin,
        pytest.raises(UnreachableError, match="name server"),
    ):
        admin.topics()


def test_signed_requests_are_accepted_and_others_are_not(start_broker: StartBroker, tmp_path: Path) -> None:
    # Brokers 5.5 have another kind of access control.
    store = tmp_path / "signed"
    conf = tmp_path / f"rocketmq-4.9.7-{store.name}" / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(ACL)
    servers = start_broker("4.9.7", store, BrokerOptions(extra={"aclEnable": True}))
    options = ClientOptions(servers.name_server_address)
    message = OutgoingMessage("Signed", b"body", keys=("北京",), properties={"Z": "1", "_a": "2"})
    right = Credentials("RocketMQ", "12345678")
    with Producer("ClientSigned", options, credentials=right) as producer:
        result = producer.send(message)
        producer.send_batch([message, message])
        with Puller("ClientSigned", options, right) as puller:
            assert len(read_all(puller, "Signed", 3)) == 3
    assert result.status is SendStatus.SEND_OK
    for wrong in (None, Credentials("RocketMQ", "87654321"), Credentials("Nobody", "12345678")):
        with Producer("ClientSigned", options, credentials=wrong) as producer, pytest.raises(RefusedError):
            producer.send(message)
