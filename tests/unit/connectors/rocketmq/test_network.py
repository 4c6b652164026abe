"""Connections to peers that misbehave: every wait ends, and ends with the right error."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commitlake.connectors.rocketmq import connection
from commitlake.connectors.rocketmq.errors import (
    BrokenConnectionError,
    ClientOptionError,
    ProtocolError,
    RefusedError,
    RocketMQError,
    UnreachableError,
)
from commitlake.connectors.rocketmq.network import Network
from commitlake.connectors.rocketmq.options import ClientOptions
from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import Command, SerializeType, serialize_command
from commitlake.schemas.remoting.headers import OffsetResponse, QueueRequest
from commitlake.schemas.remoting.routes import TopicList
from commitlake.schemas.remoting.signing import Credentials, check_signature
from commitlake.schemas.remoting.tls import client_context, server_context
from commitlake.schemas.remoting.tls_properties import parse_tls_properties
from tests.servers.process import free_ports
from tests.support.certificates import Certificates
from tests.support.peer import Answering, Peer, reply
from tests.support.waiting import wait_until

PATIENT = ClientOptions("127.0.0.1:1", connect_seconds=20, request_seconds=20)
HASTY = ClientOptions("127.0.0.1:1", connect_seconds=1, request_seconds=0.5)


@pytest.fixture
def network() -> Iterator[Network]:
    """A client that gets its answers, also on a busy machine."""
    made = Network(PATIENT)
    yield made
    made.close()


@pytest.fixture
def hasty() -> Iterator[Network]:
    """A client that soon gives up on peers that do not answer."""
    made = Network(HASTY)
    yield made
    made.close()


def test_an_answer_is_read_by_its_header(network: Network) -> None:
    with Peer(lambda command: reply(command, offset="7")) as peer:
        answer = network.send_and_wait(peer.address, 31, QueueRequest("T", 1))
        assert answer.header_as(OffsetResponse) == OffsetResponse(7)
    assert peer.received[0].ext_fields == {"topic": "T", "queueId": "1"}


def test_one_connection_serves_many_threads(network: Network) -> None:
    with Peer(lambda command: reply(command, offset=command.ext_fields["queueId"])) as peer:
        wrong: list[int] = []

        def ask(number: int) -> None:
            for _ in range(20):
                answer = network.send_and_wait(peer.address, 31, QueueRequest("T", number))
                if answer.header_as(OffsetResponse).offset != number:
                    wrong.append(number)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert (wrong, peer.connections, len(peer.received)) == ([], 1, 160)


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda _: b"", UnreachableError, "expected an answer in time"),
        (lambda _: None, UnreachableError, "closed"),
        (lambda command: reply(command, 17, remark="no topic T"), RefusedError, r"TOPIC_NOT_EXIST \(17\): no topic T"),
        (lambda command: reply(command, 1, remark="a\nb\x1b[31m\u202e"), RefusedError, r": a\\nb\\x1b\[31m\\u202e$"),
        (lambda command: reply(command, 9999), RefusedError, "answered 9999: without a remark"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", ProtocolError, "remoting protocol"),
        (lambda _: b"\x7f\xff\xff\xff", ProtocolError, "length"),
        (lambda command: reply(command)[:-3], UnreachableError, "expected an answer"),
        (lambda command: serialize_command(Command(0, opaque=command.opaque + 1, flag=1)), UnreachableError, "none"),
    ],
)
def test_a_peer_that_misbehaves_causes_the_right_error(
    hasty: Network, answer: Answering, error: type[Exception], message: str
) -> None:
    with Peer(answer) as peer:
        with pytest.raises(error, match=message) as caught:
            hasty.send_and_wait(peer.address, 31, QueueRequest("T", 1))
        assert peer.address in str(caught.value)


def test_an_answer_with_other_fields_or_body_is_an_error(network: Network) -> None:
    with Peer(lambda command: reply(command, body=b"[1]", offset="x")) as peer:
        answer = network.send_and_wait(peer.address, 31)
        with pytest.raises(ProtocolError, match=r"OffsetResponse\.offset: expected a whole number"):
            answer.header_as(OffsetResponse)
        with pytest.raises(ProtocolError, match="TopicList: expected an object"):
            answer.body_as(TopicList)


def test_a_broken_connection_is_replaced(hasty: Network) -> None:
    answers = iter([None, b""])
    with Peer(lambda command: next(answers, reply(command))) as peer:
        with pytest.raises(BrokenConnectionError):
            hasty.send_and_wait(peer.address, RequestCode.HEART_BEAT)
        with pytest.raises(UnreachableError):
            hasty.send_and_wait(peer.address, RequestCode.HEART_BEAT)
        assert hasty.send_and_wait(peer.address, RequestCode.HEART_BEAT).code == 0
        assert peer.connections == 2


def test_only_a_request_that_changes_nothing_is_sent_again_when_its_connection_breaks(hasty: Network) -> None:
    for code, sent in ((RequestCode.GET_MAX_OFFSET, 3), (RequestCode.UPDATE_CONSUMER_OFFSET, 1)):
        answers = iter([None, None])
        with Peer(lambda command, answers=answers: next(answers, reply(command))) as peer:  # type: ignore[misc]
            with contextlib.nullcontext() if sent > 1 else pytest.raises(BrokenConnectionError):
                hasty.send_and_wait(peer.address, code)
            assert len(peer.received) == sent
    with Peer(lambda _: None) as peer:
        with pytest.raises(BrokenConnectionError, match="the server closed the connection"):
            hasty.send_and_wait(peer.address, RequestCode.GET_MAX_OFFSET)
        assert len(peer.received) == 4


def test_a_closed_client_sends_nothing_again(hasty: Network) -> None:
    with Peer(reply) as peer:
        hasty.close()
        with pytest.raises(UnreachableError):
            hasty.send_and_wait(peer.address, RequestCode.GET_MAX_OFFSET)
        wait_until(lambda: peer.connections == 1)
        assert peer.received == []


def test_a_port_without_a_listener_is_unreachable(hasty: Network) -> None:
    with pytest.raises(UnreachableError, match="cannot connect within 1 s"):
        hasty.send_and_wait(f"127.0.0.1:{free_ports(1)}", 31)


@pytest.mark.parametrize("address", ["nowhere", "a\nb:80", "x" * 300 + ":80", "a..b:80", "x" * 64 + ".net:80", "h:0"])
def test_an_invalid_address_from_a_name_server_is_unreachable(hasty: Network, address: str) -> None:
    with pytest.raises(UnreachableError, match=r"host:port|cannot connect") as caught:
        hasty.send_and_wait(address, 31)
    assert "\n" not in str(caught.value)


def test_a_send_to_a_peer_that_does_not_read_times_out(hasty: Network) -> None:
    release = threading.Event()

    def block(command: Command) -> bytes:
        release.wait(20)
        return b""

    with Peer(block) as peer:
        with pytest.raises(UnreachableError, match="expected to send"):
            _fill(hasty, peer.address)
        release.set()


def _fill(network: Network, address: str) -> None:
    for _ in range(20):
        network.send_one_way(address, 10, None, bytes(4 << 20))


def test_idle_connections_are_closed(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.05)
    with Peer(reply) as peer:
        network.send_and_wait(peer.address, 31)
        (used,) = network._connections.values()
        wait_until(lambda: not used.is_open)
        network.send_and_wait(peer.address, 31)
        assert peer.connections == 2


def test_requests_of_the_peer_are_passed_to_the_handler(network: Network) -> None:
    seen: list[tuple[str, Command]] = []
    done = threading.Event()

    def handler(address: str, command: Command) -> None:
        seen.append((address, command))
        done.set()

    network.handlers[39] = handler
    with Peer(reply) as peer:
        network.send_and_wait(peer.address, 31)
        peer.push(serialize_command(Command(40)) + serialize_command(Command(39, body=b"half")))
        assert done.wait(10)
        assert [(address, command.code) for address, command in seen] == [(peer.address, 39)]


def test_the_number_of_waiting_requests_is_limited(network: Network) -> None:
    few = Network(ClientOptions("127.0.0.1:1", request_seconds=0.3, max_pending=2))
    with Peer(lambda _: b"") as peer:
        waiting = [few.send_request(peer.address, 31, timeout_seconds=30) for _ in range(2)]
        with pytest.raises(UnreachableError, match="2 requests of this client wait"):
            few.send_request(peer.address, 31)
        few.close()
        assert all(isinstance(each.exception(5), UnreachableError) for each in waiting)


def test_requests_are_signed_with_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMMITLAKE_ROCKETMQ_ACCESS_KEY", "RocketMQ")
    monkeypatch.setenv("COMMITLAKE_ROCKETMQ_SECRET_KEY", "12345678")
    for made in (Network(PATIENT), Network(PATIENT, Credentials("RocketMQ", "12345678"))):
        with Peer(reply) as peer:
            made.send_and_wait(peer.address, 31, QueueRequest("T", 1), b"body")
            made.close()
        command = peer.received[0]
        assert check_signature(command.ext_fields, command.body, {"RocketMQ": "12345678"}) == "RocketMQ"


def test_headers_are_serialized_as_the_options_require() -> None:
    made = Network(ClientOptions("127.0.0.1:1", serialize_type=SerializeType.ROCKETMQ))
    with Peer(reply) as peer:
        made.send_and_wait(peer.address, 31, QueueRequest("T", 1))
        made.close()
    assert peer.received[0].serialize_type is SerializeType.ROCKETMQ


@pytest.mark.parametrize("answer", [None, b"", b"\0\0\0\x10 no handshake at all"])
def test_an_unfinished_tls_handshake_times_out(tmp_path: Path, answer: bytes | None) -> None:
    settings = tmp_path / "tls.properties"
    settings.write_text("tls.test.mode.enable=true\n")
    network, given_up = Network(replace(HASTY, connect_seconds=0.3, tls_config=str(settings))), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                if answer is None:
                    given_up.wait(60)
                peer.sendall(answer or b"")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(UnreachableError, match=f"{address}: expected a TLS handshake within 0.3 s"):
            network.send_and_wait(address, 31)
        given_up.set()
        thread.join(10)
    network.close()


def test_a_request_that_is_sent_while_a_tls_alert_is_handled_gets_the_alerts_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ("tls.server.need.client.auth=require", "tls.server.authClient=true")
    certificates = Certificates(tmp_path)
    properties = parse_tls_properties(certificates.server_properties(*lines), {})
    alerted, sent, fail = threading.Event(), threading.Event(), connection.PeerConnection._fail_requests

    def fail_later(self: connection.PeerConnection, problem: RocketMQError) -> None:
        alerted.set()
        sent.wait(60)
        fail(self, problem)

    monkeypatch.setattr(connection.PeerConnection, "_fail_requests", fail_later)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer, contextlib.suppress(ssl.SSLError), server_context(properties).wrap_socket(peer, True) as refused:
                refused.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        opened = connection.PeerConnection(address, HASTY, lambda *_: None, client_context(properties))
        thread.join(10)
        assert alerted.wait(10)
        with pytest.raises(UnreachableError, match="CERTIFICATE_REQUIRED"):
            opened.send_request(Command(code=31), 1)
        sent.set()
    opened.close()


def test_unusable_tls_settings_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClientOptionError, match="cannot read the file"):
        Network(replace(HASTY, tls_config=str(tmp_path / "none")))
