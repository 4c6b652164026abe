"""Remoting frames, which RocketMQ's clients, brokers and name servers exchange over TCP.

A frame, big-endian; there is no magic, no checksum and no handshake:

    offset  size  field
         0     4  length                       bytes after this field
         4     1  serialize_type               of the header: 0 JSON, 1 ROCKETMQ
         5     3  header_length                bytes
         8     h  header
       8+h        body                         rest of the frame, may be empty

A header in JSON is an object with the keys `code`, `extFields` (string to string), `flag`, `language`, `opaque`,
`remark`, `serializeTypeCurrentRPC` and `version`; for ROCKETMQ it is:

    offset  size  field
         0     2  code                         at most 32,767
         2     1  language
         3     2  version
         5     4  opaque
         9     4  flag
        13     4  remark_length                bytes, 0 for none
              n   remark                       UTF-8
              4   ext_fields_length            bytes
              m   ext_fields                   {int16 length, key, int32 length, value}, repeated

Requests go both ways on one connection, and answers come in any order: an answer has bit 0 of `flag` set and its
request's `opaque`. The answerer chooses the serialization of the answer. Source: RemotingCommand, RocketMQSerializable,
NettyDecoder (5.5.0).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.remoting.fastjson import replace_lone_surrogates

BINARY_HEADER = Layout(
    Field("code", "h", "code of the request or of the answer"),
    Field("language", "B", "see commitlake.schemas.remoting.frames.Language"),
    Field("version", "h", "version of the sender, see commitlake.schemas.remoting.frames"),
    Field("opaque", "i", "number of the request, repeated in its answer"),
    Field("flag", "i", "see commitlake.schemas.remoting.frames"),
)
"""Fixed part of a header, which is followed by the remark and the ext fields."""
assert BINARY_HEADER.size == 13

_KEY_LENGTH = struct.Struct(">h")
MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Maximum size of a frame, as in NettyDecoder (`com.rocketmq.remoting.frameMaxLength`)."""
MAX_HEADER_BYTES = 256 * 1024
"""RocketMQ has no such limit. Its largest intended header has 32,767 bytes of properties, each at most six characters
of JSON. Parsed JSON can take thirty times the memory of its text, and parsing 1 MiB takes 160 ms, so the size must be
limited."""
VERSION = 409
"""Our version, V4_9_8: the last version for which a name server writes plain JSON and nothing else changes."""
FLAG_RESPONSE = 1
FLAG_ONE_WAY = 2
"""Flag of a request that has no answer."""
HEAD = Layout(
    Field("length", "i", "bytes after this field"),
    Field("header_mark", "I", "serialize type in the first byte, the header's length in the other three"),
)
_LENGTH = struct.Struct(">i")
_NUMBERS = struct.Struct(">4i")
_DECODE_JSON = json.JSONDecoder().raw_decode


class SerializeType(IntEnum):
    """Serialization of a command's header: JSON or RocketMQ's binary form."""

    JSON = 0
    ROCKETMQ = 1


class Language(IntEnum):
    """Programming language of a peer; unknown languages are read as OTHER."""

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


class Version(IntEnum):
    """Ordinals of those RocketMQ versions that affect behaviour, or that were observed."""

    V3_0_11 = 37
    """First version in which a broker registers with the whole RegisterBrokerBody."""
    V3_4_9 = 121
    """First version in which a consumer's `maxReconsumeTimes` is used."""
    V4_0_0 = 213
    V4_9_4 = 401
    """First version for which a name server writes routes in plain JSON, and whose signatures cover every ext field."""
    V4_9_7 = 407
    V4_9_8 = 409
    V5_0_0 = 413
    """First version in which a compressed registration ends with a mapping of static topics."""
    V5_1_0 = 433
    V5_3_3 = 479
    V5_3_4 = 481
    V5_5_0 = 513


assert Version.V4_9_8 == VERSION


def version_name(ordinal: int) -> str:
    """Return the name of a version: `V5_5_0`, or `version 500` if it is unknown."""
    try:
        return Version(ordinal).name
    except ValueError:
        return f"version {ordinal}"


assert HEAD.size == 8

_LANGUAGES = {language.name: language for language in Language}
_LANGUAGE_CODES = {int(language): language for language in Language}
_NAMES = {language: language.name for language in Language}


@dataclass(slots=True)
class Command:
    """Request or answer, which must not be modified.

    It is not frozen because creating a frozen one takes four times as long, and a broker creates two for each message.

    Attributes:
        code: a `RequestCode`, or in an answer a `ResponseCode`.
        ext_fields: arguments, all of them text; see schemas.remoting.headers.
        body: bytes whose meaning depends on the code.
        remark: in an answer, the reason why it is not SUCCESS.
        opaque: number of the request; an answer repeats it.
        flag: FLAG_RESPONSE, FLAG_ONE_WAY.
        language: language of the sender.
        version: version of the sender, an ordinal.
        serialize_type: serialization of the header.
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
        """True if the command is an answer, to the request with the same `opaque`."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_one_way(self) -> bool:
        """True if the command is a request that gets no answer."""
        return bool(self.flag & FLAG_ONE_WAY)

    def reply(
        self,
        code: int,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        remark: str | None = None,
    ) -> Command:
        """Return an answer to this request, in the same serialization."""
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
    """Parse the command whose frame begins at `offset`, and return it with the frame's size.

    Args:
        buffer: received bytes. The command gets a copy of its body, and does not reference the buffer.
        offset: offset of the frame's first byte.
        limit: maximum size of the frame, bytes.

    Returns:
        The command and its size, or None if the frame is incomplete.

    Raises:
        LayoutError: if the bytes are not a valid frame. Lengths are checked before anything is allocated, and as soon
        as they have arrived.
    """
    available = len(buffer) - offset
    if available < HEAD.size:
        # A wrong length is refused at once, not only when the rest of the head arrives.
        if available >= _LENGTH.size:
            _check_length(_LENGTH.unpack_from(buffer, offset)[0], offset, limit)
        return None
    length, mark = HEAD.struct.unpack_from(buffer, offset)
    if not 4 <= length <= limit - 4:
        _check_length(length, offset, limit)
    header_length = mark & 0xFFFFFF
    if header_length > length - 4 or header_length > MAX_HEADER_BYTES:
        max_length = min(length - 4, MAX_HEADER_BYTES)
        raise LayoutError("header_length", offset + 5, f"0 to {max_length}", f"{header_length}")
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
        return _parse_json_command(str(header, "utf-8", "replace"), body, start), size
    return _parse_binary_command(bytes(header), body, start), size


def _check_length(length: int, offset: int, limit: int) -> None:
    if not 4 <= length <= limit - 4:
        raise LayoutError("length", offset, f"4 to {limit - 4}", f"{length}")


def _parse_json_command(text: str, body: bytes, start: int) -> Command:
    # Lone surrogates could not be encoded in an answer that repeats the text.
    text = replace_lone_surrogates(text.strip())
    try:
        header, end = _DECODE_JSON(text)
    except (ValueError, RecursionError) as error:
        raise _header_error(start, f"{type(error).__name__}: {str(error)[:80]}") from None
    # `type`, not `isinstance`: this runs for each request, and JSON gives no subclasses.
    if type(header) is not dict or end != len(text):
        raise _header_error(start, repr(text[:80]))
    get = header.get
    try:
        code, version, opaque, flag = header["code"], get("version", 0), get("opaque", 0), get("flag", 0)
        _NUMBERS.pack(code, version, opaque, flag)  # fails unless all are 32-bit integers
    except (KeyError, struct.error):
        found = ", ".join(f"{key} {_describe_value(get(key))}" for key in ("code", "version", "opaque", "flag"))
        raise LayoutError("header", start, "a code, and 32-bit integers", found) from None
    fields = get("extFields") or {}
    if type(fields) is not dict:
        raise LayoutError("extFields", start, "an object", _describe_value(fields))
    try:
        "".join(fields.values())  # fails unless all are text
    except TypeError:
        fields = {key: _value_to_text(key, value, start) for key, value in fields.items() if value is not None}
    remark = get("remark")
    if remark is not None and type(remark) is not str:
        raise LayoutError("remark", start, "text", _describe_value(remark))
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


def _header_error(start: int, found: str) -> LayoutError:
    return LayoutError("header", start, "one JSON object", found)


def _describe_value(value: Any) -> str:
    """Return a short description of a value for an error message; `repr` would fail on deeply nested values."""
    if isinstance(value, dict | list):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)[:80]


def _value_to_text(key: str, value: Any, start: int) -> str:
    """Convert the value of an ext field to text, as fastjson does for a map of strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        name = key[:40] if key.isprintable() else repr(key[:40])
        raise LayoutError(f"extFields.{name}", start, "text", _describe_value(value))
    return json.dumps(value)


def _parse_binary_command(data: bytes, body: bytes, start: int) -> Command:
    code, language, version, opaque, flag, remark, fields = parse_binary_header(data, start)
    known = _LANGUAGE_CODES.get(language, Language.OTHER)
    return Command(code, fields, body, remark, opaque, flag, known, version, SerializeType.ROCKETMQ)


def serialize_command(command: Command) -> bytes:
    """Serialize a command to a frame.

    Raises:
        UnserializableError: if a number or a text does not fit in the format.
    """
    return serialize_without_body(command) + command.body


def serialize_without_body(command: Command) -> bytes:
    """Serialize a frame without its body, for a caller that sends a large body separately.

    Raises:
        UnserializableError: if a number or a text does not fit in the format.
    """
    is_json = command.serialize_type == SerializeType.JSON
    header = _serialize_json_header(command) if is_json else _binary_header(command)
    length = 4 + len(header) + len(command.body)
    if len(header) > MAX_HEADER_BYTES:
        raise UnserializableError("header_length", f"at most {MAX_HEADER_BYTES} bytes", f"{len(header)}")
    if length > MAX_FRAME_BYTES - 4:
        raise UnserializableError("length", f"at most {MAX_FRAME_BYTES - 4} bytes", f"{length}")
    return HEAD.struct.pack(length, len(header) | command.serialize_type << 24) + header


def _serialize_json_header(command: Command) -> bytes:
    # In Java's order, and without json.dumps, which takes three times as long.
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


class BinaryHeader(NamedTuple):
    """Values of a command's header in the binary serialization, ROCKETMQ."""

    code: int
    language: int
    version: int
    opaque: int
    flag: int
    remark: str | None
    ext_fields: Mapping[str, str]


def parse_binary_header(header: bytes, start: int) -> BinaryHeader:
    """Parse a complete header in the binary serialization, ROCKETMQ.

    Args:
        start: position of the header in the parsed buffer, for errors.

    Raises:
        LayoutError: if the bytes are not a valid header.
    """
    if len(header) < BINARY_HEADER.size:
        raise LayoutError("header", start, f"at least {BINARY_HEADER.size} bytes", f"{len(header)}")
    code, language, version, opaque, flag = BINARY_HEADER.struct.unpack_from(header)
    remark, position = _read_text("remark", header, BINARY_HEADER.size, _LENGTH, start)
    fields_length, position = _read_length("ext_fields", header, position, _LENGTH, start)
    if position + fields_length != len(header):
        expected = f"{len(header) - position}, all that is left of the header"
        raise LayoutError("ext_fields_length", start + position - 4, expected, f"{fields_length}")
    fields = {}
    while position < len(header):
        key, position = _read_text("ext_fields key", header, position, _KEY_LENGTH, start)
        fields[key], position = _read_text("ext_fields value", header, position, _LENGTH, start)
    return BinaryHeader(code, language, version, opaque, flag, remark or None, fields)


def _read_length(name: str, header: bytes, position: int, length_format: struct.Struct, start: int) -> tuple[int, int]:
    """Read a length field of a header, and return the length and the position after the field."""
    after = position + length_format.size
    if after > len(header):
        raise LayoutError(
            f"{name} length", start + position, f"{length_format.size} bytes", f"{len(header) - position}"
        )
    length: int = length_format.unpack_from(header, position)[0]
    if not 0 <= length <= len(header) - after:
        raise LayoutError(f"{name} length", start + position, f"0 to {len(header) - after}", f"{length}")
    return length, after


def _read_text(name: str, header: bytes, position: int, length_format: struct.Struct, start: int) -> tuple[str, int]:
    length, after = _read_length(name, header, position, length_format, start)
    return header[after : after + length].decode("utf-8", "replace"), after + length


def serialize_binary_header(header: BinaryHeader) -> bytes:
    """Serialize a header in the binary serialization, ROCKETMQ.

    Raises:
        UnserializableError: if a number or a text does not fit in the format.
    """
    fields: list[bytes] = []
    for key, value in header.ext_fields.items():
        name, data = _encode_text(key), _encode_text(value)
        if len(name) > 0x7FFF:
            raise UnserializableError("ext_fields key", "at most 32767 bytes", f"{len(name)} bytes")
        fields += (_KEY_LENGTH.pack(len(name)), name, _LENGTH.pack(len(data)), data)
    remark = _encode_text(header.remark or "")
    packed = b"".join(fields)
    try:
        head = BINARY_HEADER.pack(header.code, header.language, header.version, header.opaque, header.flag)
    except struct.error:
        found = f"code {header.code}, version {header.version}, opaque {header.opaque}, flag {header.flag}"
        raise UnserializableError("header", "code and version of 16 bits, opaque and flag of 32", found) from None
    return b"".join((head, _LENGTH.pack(len(remark)), remark, _LENGTH.pack(len(packed)), packed))


def _encode_text(text: str) -> bytes:
    # As in Java's UTF-8, an unpaired surrogate, which JSON may contain, becomes a question mark.
    return text.encode("utf-8", "replace")
