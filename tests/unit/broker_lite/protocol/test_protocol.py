"""Tests of frames that arrive in pieces, and of requests in both directions."""

from __future__ import annotations

import pytest

from commitlake.broker_lite.protocol import Channel, FrameReader
from commitlake.broker_lite.protocol.channel import MAX_PENDING_REQUESTS
from commitlake.schemas.layouts.errors import LayoutError
from commitlake.schemas.layouts.rocketmq.hosts import Host
from commitlake.schemas.remoting.frames import Command, serialize_command

COMMANDS = [Command(number, {"n": str(number)}, b"x" * number, opaque=number) for number in (1, 20, 300)]
DATA = b"".join(map(serialize_command, COMMANDS))
PEER = Host.of("127.0.0.1", 4000)


@pytest.mark.parametrize("size", [1, 2, 7, 100, len(DATA)])
def test_commands_are_read_from_pieces_of_any_size(size: int) -> None:
    reader = FrameReader()
    found = [command for start in range(0, len(DATA), size) for command in reader.feed(DATA[start : start + size])]
    assert found == COMMANDS
    assert reader.incomplete_frame_size == 0


def test_a_frame_over_the_limit_is_refused_after_its_first_bytes() -> None:
    reader = FrameReader(limit_bytes=100)
    assert reader.feed(b"\x00\x00\x00") == []
    with pytest.raises(LayoutError, match="length"):
        reader.feed(b"\x61")


def channel() -> tuple[Channel, list[Command]]:
    """Return a connection, and the list of frames sent on it."""
    reader, sent = FrameReader(), []

    def write(frame: bytes) -> None:
        sent.extend(reader.feed(frame))

    return Channel(PEER, write, lambda: None), sent


def test_an_answer_reaches_its_request() -> None:
    connection, sent = channel()
    answers: list[Command | None] = []
    for code in (7, 8):
        connection.ask(Command(code), answers.append)
    first, second = sent
    assert first.opaque != second.opaque
    connection.deliver_answer(second.reply(0, remark="second"))
    connection.deliver_answer(second.reply(0, remark="once more"))
    assert [answer.remark for answer in answers if answer] == ["second"]
    connection.on_connection_lost()
    assert answers[1:] == [None]
    connection.send(Command(9))
    assert len(sent) == 2


def test_a_request_over_the_limit_of_pending_requests_gets_no_answer() -> None:
    connection, _ = channel()
    answers: list[Command | None] = []
    for _ in range(MAX_PENDING_REQUESTS + 2):
        connection.ask(Command(7), answers.append)
    assert answers == [None, None]
