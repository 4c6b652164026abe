"""Remoting frames: what RocketMQ's clients, brokers and name servers say to each other over TCP.

A frame, big-endian; there is no magic, no checksum and no handshake:

    offset  size  field
         0     4  length                       of all that follows, bytes
         4     1  serialize_type               of the header: 0 JSON, 1 ROCKETMQ
         5     3  header_length                bytes
         8     h  header
       8+h        body                         the rest of the frame, may be empty

A header in JSON is an object with the keys `code`, `extFields` (string to string), `flag`, `language`, `opaque`,
`remark`, `serializeTypeCurrentRPC` and `version`; the same in ROCKETMQ is told in remoting_binary.py.

Requests go both ways on one connection, and answers come in any order: an answer has bit 0 of `flag` and its request's
`opaque`. Which serialisation an answer has is the answerer's choice. Source: RemotingCommand, NettyDecoder (5.5.0).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from typing import Any

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.remoting.binary_header import BinaryHeader, parse_binary_header, serialize_binary_header

MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Of a whole frame, as NettyDecoder has it (`com.rocketmq.remoting.frameMaxLength`)."""
MAX_HEADER_BYTES = 256 * 1024
"""RocketMQ has no such limit. The largest header that it means holds 32,767 bytes of properties, each at worst six
characters of JSON. Parsed JSON can take thirty times the memory of its text, and 1 MiB of it takes 160 ms to read:
strangers should choose neither."""
VERSION = 409
"""What we say we are, V4_9_8: the last version for which a name server writes plain JSON and nothing else changes."""


class SerializeType(IntEnum):
    """How a header is written."""

    JSON = 0
    ROCKETMQ = 1


class Language(IntEnum):
    """What a peer is written in: the name in JSON, the number in ROCKETMQ. Unknown ones are read as OTHER."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


FLAG_RESPONSE = 1
FLAG_ONE_WAY = 2
"""The sender of the request waits for no answer, and gets none."""

HEAD = Layout(
    Field("length", "i", "bytes behind this field"),
    Field("header_mark", "I", "serialize type in the first byte, the header's length in the other three"),
)
assert HEAD.size == 8

_LENGTH = struct.Struct(">i")
_NUMBERS = struct.Struct(">4i")
_LANGUAGES = {language.name: language for language in Language}
_LANGUAGE_CODES = {int(language): language for language in Language}
_NAMES = {language: language.name for language in Language}
_DECODE_JSON = json.JSONDecoder().raw_decode


@dataclass(slots=True)
class Command:
    """One request or answer. A value: nobody changes one.

    It is not frozen because a frozen one takes four times as long to make, and a broker makes two for each message.

    Attributes:
        code: a `RequestCode`, or in an answer a `ResponseCode`.
        ext_fields: the arguments, all of them text; see schemas.remoting.headers.
        body: bytes that the code gives a meaning to.
        remark: in an answer, why it is not SUCCESS.
        opaque: number of the request; an answer repeats it.
        flag: FLAG_RESPONSE, FLAG_ONE_WAY.
        language: the sender's.
        version: the sender's, an ordinal.
        serialize_type: how the header is written.
    """

    code: int
    ext_fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes | memoryview = b""
    remark: str | None = None
    opaque: int = 0
    flag: int = 0
    language: Language = Language.PYTHON
    version: int = VERSION
    serialize_type: SerializeType = SerializeType.JSON

    @property
    def is_response(self) -> bool:
        """Whether this answers a request of the same `opaque`."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """Whether this is a request that nobody waits for."""
        return bool(self.flag & FLAG_ONE_WAY)

    def reply(
        self,
        code: int,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        remark: str | None = None,
    ) -> Command:
        """An answer to this request, written as the request was."""
        return Command(
            code,
            {} if ext_fields is None else ext_fields,
            body,
            remark,
            self.opaque,
            FLAG_RESPONSE,
            serialize_type=self.serialize_type,
        )


def parse_command(buffer: ReadableBuffer, offset: int = 0, limit: int = MAX_FRAME_BYTES) -> tuple[Command, int] | None:
    """The command whose frame begins at `offset`, and the frame's size.

    Args:
        buffer: what has arrived. The command keeps a copy of its body, and nothing of the buffer.
        offset: the frame's first byte.
        limit: of the frame's size, bytes.

    Returns:
        The command and the bytes it takes, or None where the frame is not all here yet.

    Raises:
        LayoutError: if this is no frame, whatever may follow. The lengths are looked at before anything is allocated,
            and as soon as they are here.
    """
    available = len(buffer) - offset
    if available < HEAD.size:
        if available >= _LENGTH.size:
            _check_length(_LENGTH.unpack_from(buffer, offset)[0], offset, limit)
        return None
    length, mark = HEAD.struct.unpack_from(buffer, offset)
    if not 4 <= length <= limit - 4:
        _check_length(length, offset, limit)
    header_length = mark & 0xFFFFFF
    if header_length > length - 4 or header_length > MAX_HEADER_BYTES:
        most = min(length - 4, MAX_HEADER_BYTES)
        raise LayoutError("header_length", offset + 5, f"0 to {most}", f"{header_length}")
    serialize_type = mark >> 24
    if serialize_type > SerializeType.ROCKETMQ:
        raise LayoutError("serialize_type", offset + 4, "0 (JSON) or 1 (ROCKETMQ)", f"{serialize_type}")
    size = length + 4
    if available < size:
        return None
    start = offset + 8
    end = start + header_length
    body = bytes(memoryview(buffer)[end : offset + size]) if header_length + 4 < length else b""
    header = buffer[start:end]
    if serialize_type == SerializeType.JSON:
        return _parse_json(str(header, "utf-8", "replace"), body, start), size
    return _parse_binary(bytes(header), body, start), size


def _check_length(length: int, offset: int, limit: int) -> None:
    if not 4 <= length <= limit - 4:
        raise LayoutError("length", offset, f"4 to {limit - 4}", f"{length}")


def _parse_json(text: str, body: bytes, start: int) -> Command:
    text = text.strip()
    try:
        header, end = _DECODE_JSON(text)
    except (ValueError, RecursionError) as error:
        raise _wrong_header(start, f"{type(error).__name__}: {str(error)[:80]}") from None
    if type(header) is not dict or end != len(text):
        raise _wrong_header(start, repr(text[:80]))
    get = header.get
    try:
        code, version, opaque, flag = header["code"], get("version", 0), get("opaque", 0), get("flag", 0)
        _NUMBERS.pack(code, version, opaque, flag)  # sees at once that all are numbers of Java's size
    except (KeyError, struct.error):
        found = {key: get(key) for key in ("code", "version", "opaque", "flag")}
        raise LayoutError("header", start, "a code, and numbers of 32 bits", repr(found)[:160]) from None
    fields = get("extFields") or {}
    if type(fields) is not dict:
        raise LayoutError("extFields", start, "an object", repr(fields)[:80])
    try:
        "".join(fields.values())  # sees at once that all are text
    except TypeError:
        fields = {key: _text(key, value, start) for key, value in fields.items() if value is not None}
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        raise LayoutError("remark", start, "text", repr(remark)[:80])
    language = get("language")
    return Command(
        code,
        fields,
        body,
        remark,
        opaque,
        flag,
        _LANGUAGES.get(language, Language.OTHER) if type(language) is str else Language.OTHER,
        version,
        SerializeType.JSON,
    )


def _wrong_header(start: int, found: str) -> LayoutError:
    return LayoutError("header", start, "one JSON object", found)


def _text(key: str, value: Any, start: int) -> str:
    """A value as fastjson puts it into a map of strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        raise LayoutError(f"extFields.{key[:40]}", start, "text", repr(value)[:80])
    return json.dumps(value)


def _parse_binary(data: bytes, body: bytes, start: int) -> Command:
    code, language, version, opaque, flag, remark, fields = parse_binary_header(data, start)
    known = _LANGUAGE_CODES.get(language, Language.OTHER)
    return Command(code, fields, body, remark, opaque, flag, known, version, SerializeType.ROCKETMQ)


def serialize_command(command: Command) -> bytes:
    """The command's frame.

    Raises:
        UnserializableError: for a number or a text that the format has no room for.
    """
    return serialize_head(command) + command.body


def serialize_head(command: Command) -> bytes:
    """The frame without its body, for a writer that sends a large body from where it is.

    Raises:
        UnserializableError: for a number or a text that the format has no room for.
    """
    is_json = command.serialize_type == SerializeType.JSON
    header = _json_header(command) if is_json else _binary_header(command)
    length = 4 + len(header) + len(command.body)
    if len(header) > MAX_HEADER_BYTES:
        raise UnserializableError("header_length", f"at most {MAX_HEADER_BYTES} bytes", f"{len(header)}")
    if length > MAX_FRAME_BYTES - 4:
        raise UnserializableError("length", f"at most {MAX_FRAME_BYTES - 4} bytes", f"{length}")
    return HEAD.struct.pack(length, len(header) | command.serialize_type << 24) + header


def _json_header(command: Command) -> bytes:
    # In Java's order, and without json's general machinery, which takes three times as long.
    quoted = encode_basestring_ascii
    try:
        fields = ",".join([f"{quoted(key)}:{quoted(value)}" for key, value in command.ext_fields.items()])
        remark = "" if command.remark is None else f'"remark":{quoted(command.remark)},'
    except TypeError:
        raise UnserializableError("ext_fields", "text", repr(command.ext_fields)[:160]) from None
    text = (
        f'{{"code":{command.code:d},"extFields":{{{fields}}},"flag":{command.flag:d},'
        f'"language":"{_NAMES[command.language]}","opaque":{command.opaque:d},{remark}'
        f'"serializeTypeCurrentRPC":"JSON","version":{command.version:d}}}'
    )
    return text.encode("ascii")


def _binary_header(command: Command) -> bytes:
    numbers = (command.code, command.language, command.version, command.opaque, command.flag)
    return serialize_binary_header(BinaryHeader(*numbers, command.remark, command.ext_fields))
