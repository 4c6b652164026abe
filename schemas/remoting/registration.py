"""Body of a broker's registration (103): JSON, or a zlib stream of texts that follow an int32 length.

The compressed form:

    data version            JSON
    int32                   number of topics
    topic, repeated         "name readQueueNums writeQueueNums perm filterType attributes"; 4.9 has no attributes, and
                            cannot read a line with attributes
    filter servers          JSON list
    since 5.0.0: int32, and as many mappings of static topics in JSON, which are ignored here

Source: RegisterBrokerBody.encode and decode (4.9.7, 5.5.0).
"""

from __future__ import annotations

import codecs
import json
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any

from commitlake.schemas.layouts.rocketmq.topics import FILTER_TYPES
from commitlake.schemas.remoting.errors import BodyError
from commitlake.schemas.remoting.fastjson import parse_fastjson, replace_lone_surrogates
from commitlake.schemas.remoting.frames import VERSION, Version
from commitlake.schemas.remoting.json_fields import from_json, serialize_body
from commitlake.schemas.remoting.topic_and_group_configs import DataVersion, RegisterBrokerBody, TopicConfig

STEP_CHARACTERS = 16 * 1024
_DECODED_BYTES = 256 * 1024
# Possessive quantifiers (`+` after `}` or `*`) do not backtrack, so that no input takes quadratic time.
_BLANKS = re.compile(rf"[ \t\n\r]{{0,{STEP_CHARACTERS}}}+")
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(r'[^\s"{}\[\]:,]{1,64}+')
# A string, or the start of one that does not end within the examined characters; an opening or a closing bracket.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|(\\?\Z))|([\[{])|[\]}]', re.DOTALL)
MAX_REGISTRATION_BYTES = 16 * 1024 * 1024
"""Maximum size of the decompressed body: room for 200,000 topics."""
MAX_TEXT_BYTES = STEP_CHARACTERS
"""Maximum size of one topic with its attributes, of the data version, and of the filter servers."""
STEP_BYTES = 256 * 1024
"""Number of bytes that are decompressed at a time."""
_INT = struct.Struct(">i")


def decode_utf8_in_steps(body: bytes | bytearray | memoryview) -> Iterator[str]:
    """Decode a UTF-8 text in steps, and yield its pieces; invalid bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for start in range(0, len(body), _DECODED_BYTES):
        yield decoder.decode(bytes(body[start : start + _DECODED_BYTES]))
    yield decoder.decode(b"", final=True)


class JsonCursor:
    """Reader of large JSON documents in small steps, between which a server can do other work.

        cursor = JsonCursor(body)
        for key in cursor.keys():                   # keys of the object at the cursor
            if key == "table":
                for name in cursor.keys():          # keys of a nested object
                    value = cursor.value()          # a small value, parsed at once
            else:
                yield from cursor.skip()            # a value of any size

    Every step examines at most STEP_CHARACTERS. A parsed value, a skipped string and the white space between two tokens
    must not be longer.
    """

    def __init__(self, text: str) -> None:
        """Set the cursor to the beginning of a document."""
        self._text = text
        self._position = 0

    def read_keys(self) -> Iterator[str]:
        """Yield the keys of the object at the cursor, one after another; `null` counts as an empty object.

        The caller must read or skip the value of each key before the next one.

        Raises:
            BodyError: if there is no object at the cursor, or it is not well-formed.
        """
        if self._skip_token("null"):
            return
        self._expect_token("{")
        if self._skip_token("}"):
            return
        while True:
            yield self._read_key()
            if not self._skip_token(","):
                self._expect_token("}")
                return

    def read_value(self) -> Any:
        """Parse the value at the cursor, and move after it.

        Raises:
            BodyError: if it is longer than STEP_CHARACTERS, or not JSON.
        """
        start = self._skip_to_value()
        limit = start + STEP_CHARACTERS
        for _ in self._move_after_value(limit):
            pass
        # Only the value's end has been checked so far.
        try:
            return parse_fastjson(self._text[start : self._position])
        except ValueError as error:
            raise BodyError(f"expected JSON at character {start}, found invalid JSON: {str(error)[:80]}") from None

    def skip_value(self) -> Iterator[None]:
        """Move the cursor past a value in steps, checking only the value's strings and brackets.

        Raises:
            BodyError: if the value is incomplete.
        """
        self._skip_to_value()
        yield from self._move_after_value(len(self._text))

    def check_end(self) -> None:
        """Check that nothing follows the parsed document.

        Raises:
            BodyError: if something follows.
        """
        self._skip_blanks()
        if self._position < len(self._text):
            raise self._syntax_error("the end")

    def _skip_to_value(self) -> int:
        self._skip_blanks()
        return self._position

    def _move_after_value(self, limit: int) -> Iterator[None]:
        """Move the cursor past a value, and yield after each step."""
        if scalar := _SCALAR.match(self._text, self._position):
            self._position = scalar.end()
            return
        if self._text[self._position : self._position + 1] not in ('"', "{", "["):
            raise self._syntax_error("a value")
        start = position = step_start = self._position
        depth = 0
        while True:
            token = _TOKEN.search(self._text, position, min(position + STEP_CHARACTERS, limit))
            if token is None:
                position = min(position + STEP_CHARACTERS, limit)
            elif token[1] is None:
                position = token.end()
                depth += 1 if token[2] else 0 if token[0][0] == '"' else -1
                if depth == 0:
                    self._position = position
                    return
            elif token.start() > position:
                # A string does not end within the step: the next step begins with it, and has all of its characters.
                position = token.start()
            else:
                # A string longer than a step; the caller gets the error below.
                position = limit
            if position >= limit:
                expected = f"a value of at most {limit - start} characters, with strings of at most {STEP_CHARACTERS}"
                raise self._syntax_error(expected)
            if position - step_start >= STEP_CHARACTERS:
                step_start = position
                yield

    def _read_key(self) -> str:
        self._skip_blanks()
        match = _TEXT.match(self._text, self._position, self._position + STEP_CHARACTERS)
        if match is None:
            raise self._syntax_error("a key")
        start, self._position = self._position, match.end()
        self._expect_token(":")
        try:
            key: str = json.loads(replace_lone_surrogates(match[0]), strict=False)
        except ValueError as error:
            raise BodyError(
                f"expected the key of a JSON object at character {start}, found an invalid one: {str(error)[:80]}"
            ) from None
        return key

    def _skip_token(self, token: str) -> bool:
        """Move the cursor past a token if it is the next one, and return whether it was."""
        self._skip_blanks()
        is_here = self._text.startswith(token, self._position)
        self._position += len(token) * is_here
        return is_here

    def _expect_token(self, token: str) -> None:
        if not self._skip_token(token):
            raise self._syntax_error(repr(token))

    def _skip_blanks(self) -> None:
        if blanks := _BLANKS.match(self._text, self._position):
            self._position = blanks.end()

    def _syntax_error(self, expected: str) -> BodyError:
        found = self._text[self._position : self._position + 40]
        return BodyError(f"expected {expected} at character {self._position}, found {found!r}")


class RegistrationReader:
    """Incremental reader of the topics in the body of REGISTER_BROKER, which a broker sends to a name server.

    Attributes:
        data_version: version of the topics; known after all topics were read.
        filter_servers: addresses of the broker's filter servers; known after all topics were read.
    """

    def __init__(self, body: bytes | memoryview, *, compressed: bool) -> None:
        """Start reading a registration from its body.

        Args:
            body: body of the request.
            compressed: whether the request declares the compressed form.
        """
        self._body = body
        self._is_compressed = compressed
        self.data_version = DataVersion()
        self.filter_servers: tuple[str, ...] = ()

    def read_topics(self) -> Iterator[tuple[str, TopicConfig] | None]:
        """Yield the topics with their names. Yield None after a step, of a few milliseconds, that completed no topic.

        Raises:
            BodyError: if the body does not have the declared form.
        """
        return self._read_compressed_topics() if self._is_compressed else self._read_json_topics()

    def _read_json_topics(self) -> Iterator[tuple[str, TopicConfig] | None]:
        pieces = []
        for piece in decode_utf8_in_steps(self._body):
            pieces.append(piece)
            yield None
        cursor = JsonCursor("".join(pieces))
        for key in cursor.read_keys():
            if key == "topicConfigSerializeWrapper":
                yield from self._read_wrapper_topics(cursor)
            elif key == "filterServerList":
                self.filter_servers = _check_filter_servers(cursor.read_value())
            else:
                yield from cursor.skip_value()
            yield None
        cursor.check_end()

    def _read_wrapper_topics(self, cursor: JsonCursor) -> Iterator[tuple[str, TopicConfig] | None]:
        for key in cursor.read_keys():
            if key == "topicConfigTable":
                for name in cursor.read_keys():
                    yield name, from_json(TopicConfig, cursor.read_value())
            elif key == "dataVersion":
                self.data_version = from_json(DataVersion, cursor.read_value() or {})
            else:
                yield from cursor.skip_value()
            yield None

    def _read_compressed_topics(self) -> Iterator[tuple[str, TopicConfig] | None]:
        data = bytearray()
        for piece in _decompress(self._body):
            data += piece
            yield None
        stream = _TextReader(data)
        self.data_version = from_json(DataVersion, _parse_json(stream.read_text("the data version")))
        for _ in range(stream.read_count("the number of topics")):
            config = _parse_topic(stream.read_text("a topic"))
            yield config.topic_name, config
        self.filter_servers = _check_filter_servers(_parse_json(stream.read_text("the filter servers")))


def serialize_registration(registration: RegisterBrokerBody, *, version: int = VERSION) -> bytes:
    """Serialize the compressed body of REGISTER_BROKER for a broker version; 4.9 cannot read topics' attributes."""
    wrapper = registration.topic_config_serialize_wrapper
    parts = [_prepend_length(serialize_body(wrapper.data_version)), _INT.pack(len(wrapper.topic_config_table))]
    for topic in wrapper.topic_config_table.values():
        line = (
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
            f"{topic.topic_filter_type}"
        )
        if topic.attributes is not None:
            line += f" {json.dumps(topic.attributes, separators=(',', ':'))}"
        parts.append(_prepend_length(line.encode()))
    parts.append(_prepend_length(json.dumps(list(registration.filter_server_list)).encode()))
    if version >= Version.V5_0_0:
        parts.append(_INT.pack(0))
    return zlib.compress(b"".join(parts))


def _prepend_length(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _decompress(body: bytes | memoryview) -> Iterator[bytes]:
    """Decompress the body in steps, and yield its pieces."""
    stream = zlib.decompressobj()
    size = 0
    for start in range(0, len(body), STEP_BYTES):
        rest, piece = bytes(body[start : start + STEP_BYTES]), b""
        while (rest or len(piece) == STEP_BYTES) and not stream.eof:
            try:
                piece = stream.decompress(rest, STEP_BYTES)
            except zlib.error as error:
                raise BodyError(f"registration: expected a zlib stream, found other bytes: {error}") from None
            size += len(piece)
            if size > MAX_REGISTRATION_BYTES:
                raise BodyError(
                    f"registration: expected at most {MAX_REGISTRATION_BYTES} bytes once decompressed, found more"
                )
            yield piece
            rest = stream.unconsumed_tail
    if not stream.eof:
        raise BodyError("registration: expected a complete zlib stream, found a truncated one")


class _TextReader:
    """Reader of consecutive texts and numbers in binary data."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data
        self._position = 0

    def read_count(self, value_name: str) -> int:
        """Read a number, and check that it is at most the number of remaining bytes."""
        left = len(self._data) - self._position - _INT.size
        if left < 0:
            raise BodyError(f"registration: expected {value_name} at byte {self._position}, found the end of the data")
        number: int = _INT.unpack_from(self._data, self._position)[0]
        if not 0 <= number <= left:
            raise BodyError(
                f"registration: expected {value_name} of at most {left}, which is the rest of the data, at byte "
                f"{self._position}, found {number}"
            )
        self._position += _INT.size
        return number

    def read_text(self, text_name: str) -> str:
        """Read a text, which is stored after its length."""
        start = self._position + _INT.size
        if (length := self.read_count(text_name)) > MAX_TEXT_BYTES:
            raise BodyError(
                f"registration: expected {text_name} of at most {MAX_TEXT_BYTES} bytes, found {length} bytes"
            )
        self._position = start + length
        return self._data[start : self._position].decode("utf-8", "replace")


def _check_filter_servers(servers: object) -> tuple[str, ...]:
    if not isinstance(servers, list) or not all(isinstance(server, str) for server in servers):
        raise BodyError(f"filter servers: expected a list of strings, found {repr(servers)[:80]}")
    return tuple(servers)


def _parse_json(text: str) -> object:
    try:
        return parse_fastjson(text)
    except ValueError as error:
        raise BodyError(f"registration: expected JSON, found invalid JSON: {str(error)[:80]}") from None


def _parse_topic(line: str) -> TopicConfig:
    parts = line.split(" ", 5)
    if len(parts) < 5 or not all(_is_integer_text(part) for part in parts[1:4]) or parts[4] not in FILTER_TYPES:
        raise BodyError(
            f"registration: expected a topic as a name, three numbers and a filter type, found {line[:80]!r}"
        )
    name, reads, writes, perm, filter_type = parts[:5]
    fields = {"topicName": name, "readQueueNums": reads, "writeQueueNums": writes, "perm": perm}
    attributes = _parse_json(parts[5]) if len(parts) > 5 and parts[5] else None
    return from_json(TopicConfig, fields | {"topicFilterType": filter_type, "attributes": attributes})


def _is_integer_text(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
