"""Many peers at once: the idle cost little, the busy lose nothing, the hostile are cut off."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from commitlake.schemas.remoting.codes import RequestCode
from commitlake.schemas.remoting.frames import Command, parse_command, serialize_command
from tests.servers.broker_lite import SMALL_FILES, BrokerLite
from tests.support.brokers import send_fields
from tests.support.waiting import wait_until

IDLE = 1000
PRODUCERS = 50
EACH = 40


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerLite]:
    """A broker on a new store."""
    with BrokerLite(tmp_path / "broker", options=SMALL_FILES) as running:
        yield running


def connect(broker: BrokerLite) -> socket.socket:
    """Connect to the broker."""
    host, _, port = broker.broker_address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


def ask(connection: socket.socket, command: Command) -> Command:
    """Send a request, and return its answer."""
    connection.sendall(serialize_command(command))
    buffer = bytearray()
    while (parsed := parse_command(buffer)) is None:
        data = connection.recv(1 << 16)
        assert data, "the broker has closed the connection"
        buffer += data
    return parsed[0]


def is_cut_off(connection: socket.socket) -> bool:
    """Return whether the broker ends a connection."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:
        return True


def max_offset(connection: socket.socket, queue_id: int) -> int:
    """Return the next offset of a queue."""
    fields = {"topic": "orders", "queueId": str(queue_id)}
    return int(ask(connection, Command(RequestCode.GET_MAX_OFFSET, fields)).ext_fields["offset"])


def test_a_thousand_idle_connections_and_fifty_producers(broker: BrokerLite) -> None:
    failures: list[object] = []

    def produce(number: int) -> None:
        try:
            with connect(broker) as connection:
                for message in range(EACH):
                    fields = send_fields("orders", {"UNIQ_KEY": f"{number}-{message}"}, e=number % 4)
                    command = Command(RequestCode.SEND_MESSAGE_V2, {key: str(one) for key, one in fields.items()}, b"x")
                    if (answer := ask(connection, command)).code != 0:
                        failures.append(answer)
        except (OSError, AssertionError) as error:
            failures.append(error)

    with ExitStack() as idle:
        connections = [idle.enter_context(connect(broker)) for _ in range(IDLE)]
        producers = [threading.Thread(target=produce, args=(number,)) for number in range(PRODUCERS)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
        assert failures == []
        assert sum(max_offset(connections[-1], queue_id) for queue_id in range(4)) == PRODUCERS * EACH


@pytest.mark.parametrize(
    "noise",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\xff" * 100,
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x08\x00\x00\x00\x02{}XX",
    ],
)
def test_only_a_client_that_sends_no_frames_is_disconnected(broker: BrokerLite, noise: bytes) -> None:
    with connect(broker) as good, connect(broker) as bad:
        bad.sendall(noise)
        assert is_cut_off(bad)
        assert max_offset(good, 0) == 0


def send_until_blocked(connection: socket.socket, data: bytes) -> None:
    """Send until the peer no longer reads."""
    for _ in range(100_000):
        connection.sendall(data)


def test_requests_of_a_client_that_does_not_read_are_not_read(broker: BrokerLite) -> None:
    with connect(broker) as good, connect(broker) as deaf:
        fields = {key: str(one) for key, one in send_fields("orders", {"UNIQ_KEY": "U"}).items()}
        assert ask(good, Command(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 100_000)).code == 0
        place = Command(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
        deaf.settimeout(1)
        with pytest.raises(TimeoutError):
            send_until_blocked(deaf, serialize_command(place) * 100)
        # Its answers would be 100 kB each; most of its requests were never taken.
        assert max_offset(good, 0) == 1


def test_connections_are_limited(tmp_path: Path) -> None:
    options = (*SMALL_FILES, "--max-connections", "5")
    with BrokerLite(tmp_path / "limited", options=options) as broker, ExitStack() as stack:
        connections = [stack.enter_context(connect(broker)) for _ in range(5)]
        assert max_offset(connections[-1], 0) == 0
        refused = stack.enter_context(connect(broker))
        assert is_cut_off(refused)
        assert max_offset(connections[0], 0) == 0


def test_connections_leave_file_descriptors_for_the_store(broker: BrokerLite) -> None:
    few = 600
    fields = {key: str(one) for key, one in send_fields("orders", {"UNIQ_KEY": "U"}).items()}
    topics = broker.store / "config" / "topics.json"
    with ExitStack() as stack:
        first = stack.enter_context(connect(broker))
        _, hard = resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (few, hard))
        peers = [stack.enter_context(connect(broker)) for _ in range(few)]
        assert is_cut_off(peers[-1])
        assert max_offset(peers[few // 4], 0) == 0
        assert ask(first, Command(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 1000)).code == 0
        # The tables are written after log, queues and checkpoint.
        wait_until(lambda: topics.exists() and '"orders"' in topics.read_text())
        assert ask(first, Command(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 1000)).code == 0
    assert "Too many open files" not in broker.process.output()
