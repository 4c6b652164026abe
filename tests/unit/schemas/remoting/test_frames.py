"""Tests of frames: bytes from RocketMQ's own code, both directions, and every kind of error."""

from __future__ import annotations

import json
import struct

import pytest

from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.remoting.frames import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    Command,
    Language,
    SerializeType,
    parse_command,
    serialize_command,
)
from tests.support.machine_speed import takes_at_most

ROUTE_JSON = bytes.fromhex("0000008700000083") + (
    b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":409}'
)
ROUTE_BINARY = bytes.fromhex(
    "0000002d 01000029 0069 00 0199 00000007 00000000 00000000 000000140005 746f706963 00000009 546f70696354657374"
)
"""Both were read by RocketMQ's own decoder."""
ROUTE = Command(105, {"topic": "TopicTest"}, opaque=7, language=Language.JAVA, version=409)
FRAMES = [
    (ROUTE_JSON, ROUTE),
    (ROUTE_BINARY, Command(105, {"topic": "TopicTest"}, b"", None, 7, 0, Language.JAVA, 409, SerializeType.ROCKETMQ)),
]


def frame(header: bytes, body: bytes = b"", serialize_type: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), len(header) | serialize_type << 24) + header + body


@pytest.mark.parametrize(("data", "command"), FRAMES)
def test_both_serializations_have_the_bytes_of_rocketmq(data: bytes, command: Command) -> None:
    assert (len(ROUTE_JSON), len(ROUTE_BINARY)) == (139, 49)
    assert serialize_command(command) == data
    assert parse_command(data) == (command, len(data))


@pytest.mark.parametrize(("data", "command"), FRAMES)
def test_a_frame_cut_at_any_length_is_incomplete(data: bytes, command: Command) -> None:
    for length in range(len(data)):
        assert parse_command(data[:length]) is None
    assert parse_command(b"??" + data + b"more", 2) == (command, len(data))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_body_is_a_copy(kind: type[bytes]) -> None:
    buffer = bytearray(serialize_command(Command(10, {}, b"body")))
    parsed = parse_command(kind(buffer))
    assert parsed is not None
    buffer.clear()
    assert parsed[0].body == b"body"


def test_a_reply_has_the_number_and_serialization_of_its_request() -> None:
    for serialize_type in SerializeType:
        request = Command(10, opaque=9, serialize_type=serialize_type)
        reply = request.reply(0, {"offset": "1"}, memoryview(b"body"), "remark")
        assert reply.is_response
        assert not reply.is_one_way
        parsed = parse_command(serialize_command(reply))
        assert parsed is not None
        assert parsed[0] == Command(0, {"offset": "1"}, b"body", "remark", 9, 1, serialize_type=serialize_type)


@pytest.mark.parametrize(
    ("header", "command"),
    [
        ({"code": 0}, Command(0, language=Language.OTHER, version=0)),
        (
            {"code": 0, "extFields": None, "remark": None, "flag": 1},
            Command(0, flag=1, language=Language.OTHER, version=0),
        ),
        # As a map of strings takes them in Java.
        (
            {"code": 0, "extFields": {"a": 4, "b": True, "c": None, "d": "x"}, "language": "GO", "more": [1]},
            Command(0, {"a": "4", "b": "true", "d": "x"}, language=Language.GO, version=0),
        ),
        ({"code": 0, "language": "COBOL"}, Command(0, language=Language.OTHER, version=0)),
    ],
)
def test_a_header_may_lack_fields(header: object, command: Command) -> None:
    data = frame(b" " + json.dumps(header).encode() + b"\n")
    assert parse_command(data) == (command, len(data))


@pytest.mark.parametrize(
    ("data", "field", "offset"),
    [
        (bytes.fromhex("00000003"), "length", 0),
        (bytes.fromhex("80000000"), "length", 0),
        (struct.pack(">i", MAX_FRAME_BYTES - 3), "length", 0),
        (bytes.fromhex("00000003 00000000"), "length", 0),
        (bytes.fromhex("00000008 00000005"), "header_length", 5),
        (struct.pack(">iI", MAX_FRAME_BYTES - 4, MAX_HEADER_BYTES + 1), "header_length", 5),
        (bytes.fromhex("00000008 02000000"), "serialize_type", 4),
        (frame(b""), "header", 8),
        (frame(b"[]"), "header", 8),
        (frame(b'{"code":1}{}'), "header", 8),
        (frame(b'{"code":1'), "header", 8),
        (frame(b"[" * 100_000), "header", 8),
        (frame(b'{"code":' + b"9" * 5000 + b"}"), "header", 8),
        (frame(b"{}"), "header", 8),
        (frame(b'{"code":"10"}'), "header", 8),
        (frame(b'{"code":1.0}'), "header", 8),
        (frame(b'{"code":NaN}'), "header", 8),
        (frame(b'{"code":2147483648}'), "header", 8),
        (frame(b'{"code":1,"opaque":null}'), "header", 8),
        (frame(b'{"code":1,"extFields":[1]}'), "extFields", 8),
        (frame(b'{"code":1,"extFields":{"a":{}}}'), "extFields.a", 8),
        (frame(b'{"code":1,"remark":1}'), "remark", 8),
        (frame(bytes(12), serialize_type=1), "header", 8),
        (frame(bytes(13), serialize_type=1), "remark length", 21),
        (frame(bytes(13) + b"\xff\xff\xff\xff", serialize_type=1), "remark length", 21),
        (frame(bytes(13) + b"\0\0\0\1", serialize_type=1), "remark length", 21),
        (frame(bytes(17), serialize_type=1), "ext_fields length", 25),
        (frame(bytes(22), serialize_type=1), "ext_fields_length", 25),
        (frame(bytes(17) + b"\0\0\0\1\0", serialize_type=1), "ext_fields key length", 29),
        (frame(bytes(17) + b"\0\0\0\2\xff\xff", serialize_type=1), "ext_fields key length", 29),
        (frame(bytes(17) + b"\0\0\0\3\0\1k", serialize_type=1), "ext_fields value length", 32),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(data: bytes, field: str, offset: int) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_command(data)
    assert (caught.value.field, caught.value.offset) == (field, offset)
    assert len(str(caught.value)) < 400


def test_a_lower_limit_can_be_set() -> None:
    data = serialize_command(Command(10, {}, bytes(1000)))
    assert parse_command(data, 0, len(data)) is not None
    with pytest.raises(LayoutError, match="length at byte 0"):
        parse_command(data[:4], 0, len(data) - 1)


@pytest.mark.parametrize("serialize_type", SerializeType)
def test_text_of_any_script_is_read_back(serialize_type: SerializeType) -> None:
    fields = {"城市": "北京市", "p": 'KEYS\x01"k\\1"\x02', "empty": "", "emoji": "🚀"}
    command = Command(10, fields, b"\0", "é", serialize_type=serialize_type)
    parsed = parse_command(serialize_command(command))
    assert parsed is not None
    assert parsed[0] == command


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (Command(200_050, serialize_type=SerializeType.ROCKETMQ), "header"),
        (Command(1, {"k" * 32_768: ""}, serialize_type=SerializeType.ROCKETMQ), "ext_fields key"),
        (Command(1, {"a": 1}), "ext_fields"),  # type: ignore[dict-item]
        (Command(1, {"a": "x" * MAX_HEADER_BYTES}), "header_length"),
        (Command(1, {}, bytes(MAX_FRAME_BYTES)), "length"),
    ],
)  # fmt: skip
def test_values_that_are_too_large_are_refused(command: Command, field: str) -> None:
    with pytest.raises(UnserializableError) as caught:
        serialize_command(command)
    assert caught.value.field == field


def test_half_a_surrogate_pair_becomes_a_question_mark_in_binary() -> None:
    parsed = parse_command(frame(b'{"code":1,"extFields":{"a":"\\ud800"}}'))
    assert parsed is not None
    assert parse_command(serialize_command(parsed[0])) is not None
    parsed[0].serialize_type = SerializeType.ROCKETMQ
    again = parse_command(serialize_command(parsed[0]))
    assert again is not None
    assert again[0].ext_fields == {"a": "?"}


def test_the_largest_properties_fit_a_header() -> None:
    fields = {"i": "\x01" * 32_767, "b": "x" * 127, "a": "y" * 255, "n": "z" * 255}
    assert len(serialize_command(Command(310, fields))) < MAX_HEADER_BYTES


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":1,"extFields":{' + b",".join(b'"%d":1' % number for number in range(26_000)) + b"}}",
        b'{"code":1,"x":[' + b"[]," * 87_000 + b"1]}",
    ],
)
@pytest.mark.usefixtures("without_collection")
def test_no_header_takes_long_to_read(header: bytes) -> None:
    assert len(header) <= MAX_HEADER_BYTES
    frame = struct.pack(">iI", 4 + len(header), len(header)) + header
    assert parse_command(frame) is not None
    assert takes_at_most(0.1, lambda: parse_command(frame))
