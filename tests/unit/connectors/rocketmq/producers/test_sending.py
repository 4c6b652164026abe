"""Attempts to send, and the brokers they use, with answers that real brokers give only in trouble."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Self

import pytest

from commitlake.connectors.rocketmq import (
    ClientOptions,
    InvalidMessageError,
    NoRouteError,
    OutgoingMessage,
    Producer,
    ProducerOptions,
    ProtocolError,
    RefusedError,
    SendStatus,
    UnreachableError,
)
from commitlake.schemas.remoting.batch import parse_batch
from commitlake.schemas.remoting.codes import RequestCode, ResponseCode
from commitlake.schemas.remoting.ext_fields import to_ext_fields
from commitlake.schemas.remoting.frames import Command, serialize_command
from commitlake.schemas.remoting.headers import SendMessageResponse, parse_send_request
from commitlake.schemas.remoting.json_fields import serialize_body
from commitlake.schemas.remoting.routes import BrokerData, QueueData, TopicRoute
from tests.support.peer import Answering, Peer, reply

MESSAGE = OutgoingMessage("T", b"body")


class Cluster:
    """A name server and brokers, each with two queues of every topic but `TBW102`."""

    def __init__(self, **brokers: Answering) -> None:
        self._stack = ExitStack()
        self.brokers = {name: self._stack.enter_context(Peer(answer)) for name, answer in brokers.items()}
        self.route: TopicRoute | None = self._route(6)
        self.model: TopicRoute | None = None
        self.name_server = self._stack.enter_context(Peer(self._answer_route))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _route(self, perm: int, queues: int = 2) -> TopicRoute:
        return TopicRoute(
            tuple(QueueData(name, queues, queues, perm) for name in self.brokers),
            tuple(BrokerData(name, {0: peer.address}) for name, peer in self.brokers.items()),
        )

    def make_model(self) -> None:
        """Let the first message of a topic create it."""
        self.route, self.model = None, self._route(7, queues=8)

    def _answer_route(self, command: Command) -> bytes:
        route = self.model if command.ext_fields["topic"] == "TBW102" else self.route
        return (
            reply(command, 17) if route is None else reply(command, body=serialize_body(route, is_standard_json=True))
        )

    def producer(self, **how: Any) -> Producer:
        """Connect a producer to the cluster."""
        options = ClientOptions(self.name_server.address, request_seconds=1)
        return self._stack.enter_context(Producer("PG", options, ProducerOptions(**how)))


def stored(command: Command, code: int = 0) -> bytes:
    """Return a broker's answer to a send."""
    header = parse_send_request(command)
    response = SendMessageResponse("7F" * 16, header.queue_id, 5)
    return serialize_command(command.reply(code, to_ext_fields(response)))


def refusing(code: int) -> Answering:
    """Return a broker that answers with a code."""
    return lambda command: reply(command, code, remark="trouble")


def test_a_failed_send_is_retried_at_another_broker() -> None:
    for trouble in (refusing(1), refusing(2), refusing(14), refusing(16), refusing(17), lambda _: None):
        with Cluster(a=trouble, b=stored) as cluster:
            producer = cluster.producer()
            results = [producer.send(MESSAGE) for _ in range(4)]
            assert {result.queue.broker_name for result in results} == {"b"}
            # It was tried once at most, and then left alone.
            assert len(cluster.brokers["a"].received) <= 1


def test_all_attempts_of_a_message_have_the_same_id() -> None:
    with Cluster(a=refusing(2), b=refusing(2)) as cluster:
        with pytest.raises(RefusedError, match="SYSTEM_BUSY"):
            cluster.producer().send(MESSAGE)
        sent = cluster.brokers["a"].received + cluster.brokers["b"].received
        assert len(sent) == 3
        assert len({parse_send_request(command).properties for command in sent}) == 1


@pytest.mark.parametrize("code", [3, 13, 29])
def test_permanent_refusals_are_not_retried(code: int) -> None:
    with Cluster(a=refusing(code), b=refusing(code)) as cluster:
        with pytest.raises(RefusedError, match="trouble"):
            cluster.producer().send(MESSAGE)
        assert sum(len(peer.received) for peer in cluster.brokers.values()) == 1


@pytest.mark.parametrize("status", SendStatus)
def test_a_message_that_is_in_the_log_is_never_sent_again(status: SendStatus) -> None:
    with Cluster(a=lambda command: stored(command, status)) as cluster:
        assert cluster.producer().send(MESSAGE).status is status
        assert len(cluster.brokers["a"].received) == 1


def test_a_message_for_one_queue_is_not_sent_to_another() -> None:
    with Cluster(a=refusing(2), b=stored) as cluster:
        producer = cluster.producer()
        queue = producer.queues("T")[0]
        assert queue.broker_name == "a"
        with pytest.raises(RefusedError):
            producer.send(MESSAGE, queue=queue)
        assert len(cluster.brokers["b"].received) == 0


def test_the_timeout_is_for_all_attempts_together() -> None:
    with Cluster(a=lambda _: b"", b=lambda _: b"") as cluster:
        with pytest.raises(UnreachableError):
            cluster.producer(send_seconds=0.5).send(MESSAGE)
        assert sum(len(peer.received) for peer in cluster.brokers.values()) == 1


def test_an_invalid_answer_is_a_protocol_error() -> None:
    with Cluster(a=reply) as cluster, pytest.raises(ProtocolError, match="expected the field 'msgId'"):
        cluster.producer().send(MESSAGE)


def test_a_batch_answered_with_too_few_ids_is_a_protocol_error() -> None:
    with (
        Cluster(a=stored) as cluster,
        pytest.raises(ProtocolError, match="expected 2 message ids for a batch of as many messages, found 1"),
    ):
        cluster.producer().send_batch([MESSAGE, MESSAGE])


def test_a_topic_is_created_from_the_default_topic() -> None:
    with Cluster(a=stored) as cluster:
        cluster.make_model()
        producer = cluster.producer()
        assert [queue.queue_id for queue in producer.queues("New")] == [0, 1, 2, 3]
        producer.send(OutgoingMessage("New", b"x"))
        header = parse_send_request(cluster.brokers["a"].received[0])
        assert (header.topic, header.default_topic, header.default_topic_queue_nums) == ("New", "TBW102", 4)


def test_a_topic_that_cannot_be_created_has_no_route() -> None:
    with Cluster(a=stored) as cluster:
        cluster.route = None
        with pytest.raises(NoRouteError, match="and a message cannot create it"):
            cluster.producer().send(MESSAGE)
        cluster.route = TopicRoute((QueueData("a", 1, 1, 4),), (BrokerData("a", {0: "127.0.0.1:1"}),))
        with pytest.raises(NoRouteError, match="can be written to, found none"):
            cluster.producer().send(MESSAGE)


def test_an_impossible_route_is_refused() -> None:
    with Cluster(a=stored) as cluster:
        cluster.route = TopicRoute((QueueData("a", 1, 1 << 30, 6),), (BrokerData("a", {0: "127.0.0.1:1"}),))
        with pytest.raises(ProtocolError, match="expected 0 to 65536 queues on broker a, found 1073741824"):
            cluster.producer().send(MESSAGE)


def test_a_message_too_large_for_a_frame_is_refused() -> None:
    with Cluster(a=stored) as cluster, pytest.raises(InvalidMessageError, match="length"):
        cluster.producer(max_body_bytes=1 << 30, compression="none").send(OutgoingMessage("T", bytes(16 << 20)))


def test_a_known_route_is_used_while_no_name_server_answers(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(a=stored) as cluster:
        options = ClientOptions(cluster.name_server.address, request_seconds=0.3, route_seconds=1e-9)
        with Producer("PG", options) as producer:
            producer.send(MESSAGE)
            cluster.name_server.__exit__(None, None, None)
            assert producer.send(MESSAGE).status is SendStatus.SEND_OK
    assert "stays as it was" in caplog.text


def test_a_send_has_the_fields_of_the_java_clients() -> None:
    with Cluster(a=stored) as cluster:
        message = OutgoingMessage("T", b"x" * 5000, tags="t", keys=("k",), flag=7)
        result = cluster.producer().send(message)
        (command,) = cluster.brokers["a"].received
        assert command.code == RequestCode.SEND_MESSAGE_V2
        assert len(command.body) < 5000
        assert {key: command.ext_fields[key] for key in "abcdfhjkmn"} == {
            "a": "PG", "b": "T", "c": "TBW102", "d": "4", "f": str(0x301), "h": "7", "j": "0", "k": "false",
            "m": "false", "n": "a",
        }  # fmt: skip
        assert (
            command.ext_fields["i"] == f"KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01{result.unique_key}\x02WAIT\x01true\x02"
        )


def test_a_batch_has_the_fields_of_the_java_clients() -> None:
    def answer(command: Command) -> bytes:
        return reply(command, msgId="A,B", queueId=command.ext_fields["e"], queueOffset="7")

    with Cluster(a=answer) as cluster:
        producer = cluster.producer(max_body_bytes=200)
        results = producer.send_batch([OutgoingMessage("T", b"m1", flag=1), OutgoingMessage("T", b"m2")])
        (command,) = cluster.brokers["a"].received
        assert (command.code, command.ext_fields["m"], command.ext_fields["i"]) == (320, "true", "WAIT\x01true\x02")
        assert [(item.flag, item.body) for item in parse_batch(command.body)] == [(1, b"m1"), (0, b"m2")]
        queue_id = int(command.ext_fields["e"])
        assert [(each.offset_msg_id, each.queue.queue_id, each.queue_offset) for each in results] == [
            ("A", queue_id, 7), ("B", queue_id, 8),
        ]  # fmt: skip
        for wrong in (
            [],
            [MESSAGE, OutgoingMessage("U", b"x")],
            [MESSAGE, OutgoingMessage("T", b"x", wait_store=False)],
            [OutgoingMessage("T", b"x", delay_level=1)],
            [OutgoingMessage("%RETRY%g", b"x")],
            [MESSAGE] * 10,
        ):
            with pytest.raises(InvalidMessageError, match="batch"):
                producer.send_batch(wrong)


def test_a_refusal_by_one_broker_is_retried_at_another_without_delay() -> None:
    with Cluster(a=refusing(ResponseCode.GO_AWAY), b=stored) as cluster:
        assert cluster.producer().send(MESSAGE).queue.broker_name == "b"
