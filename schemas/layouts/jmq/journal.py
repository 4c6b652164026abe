"""Journal records, which a JMQ broker appends for each message of any topic.

A record, big-endian; 63 fixed bytes, then five parts, each after its length:

    offset  size  field
         0     4  total_size        bytes, this field included
         4     2  magic             1234
         6     1  sys_flag          0x01 body compressed (zlib), 0x02 ordered; the rest reserved
         7     2  business_tag      the application's number
         9     1  priority          0 is the lowest
        10     8  journal_offset    of this record: file start + position
        18     1  queue_id
        19     8  queue_offset      offset of the message in its queue, from 0
        27     6  client address    4 bytes IPv4, 2 bytes port
        33     6  server address    same
        39     8  send_timestamp    ms since 1970, producer's clock
        47     4  receive_delay     ms from send_timestamp to the receipt, broker's clock; may be negative
        51     4  store_delay       ms from send_timestamp to the append, broker's clock; may be negative
        55     8  body_crc          CRC-32 of the stored body, upper half zero
        63     4  body_length
        67     n  body              as stored, compressed or not
               1  topic_length
               t  topic             UTF-8
               1  app_length
               a  app               the producer's application, UTF-8
               1  business_id_length
               b  business_id       UTF-8, may be empty
               2  properties_length
               p  properties        see properties.py

Records follow one another without padding in files of 128 MiB, and never cross the end of a file: if the next one (and
6 bytes) does not fit, a FILLER follows (`total_size` = all bytes left, `magic` = BBBB), and the journal continues in
the next file. A file that is still being written ends with zeros. The CRC covers only the body. A delay that does not
fit in an int32 (24.8 days) is stored as the nearest one that does.

The fields, their sizes and their order are JMQ's. Byte order, magic, the form of an address and the kind of CRC are not
published; those above are this project's.

A producer compresses a body of more than 100 bytes as a zlib stream; a body that does not get smaller is stored as it
is. A stored body has at most 4 MiB.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.jmq.properties import Pairs, parse_properties, serialize_properties
from commitlake.schemas.layouts.rocketmq.hosts import Host

FOLDER = "journal"
DEFAULT_FILE_SIZE = 128 << 20
COMPRESSED_ABOVE_BYTES = 100
DEFAULT_LEVEL = 1
"""Three times as fast as zlib's default, and a few percent larger for JSON."""


class Magic(IntEnum):
    """Magic code, the second field of each record and FILLER in a journal."""

    MESSAGE = 0x1234
    FILLER = 0xBBBB


COMPRESSED = 0x01
ORDERED = 0x02

HEAD = Layout(
    Field("total_size", "I", "bytes of the record"),
    Field("magic", "H", "see Magic"),
    Field("sys_flag", "B", "COMPRESSED, ORDERED; reserved bits are written as 0, and ignored"),
    Field("business_tag", "H", "the application's number; ignored by brokers"),
    Field("priority", "B", "0 is the lowest"),
    Field("journal_offset", "Q", "bytes from the journal's logical start"),
    Field("queue_id", "B", ""),
    Field("queue_offset", "Q", "offset of the message in its queue"),
    Field("client_ip", "I", "IPv4"),
    Field("client_port", "H", ""),
    Field("server_ip", "I", "IPv4"),
    Field("server_port", "H", ""),
    Field("send_timestamp", "q", "ms, producer's clock"),
    Field("receive_delay", "i", "ms from send_timestamp, broker's clock"),
    Field("store_delay", "i", "ms from send_timestamp, broker's clock"),
    Field("body_crc", "Q", "CRC-32 of the stored body"),
)
"""Followed by body, topic, application, business id and properties, each after its length."""
BODY_LENGTH = Layout(Field("body_length", "I", "bytes"))
TOPIC_LENGTH = Layout(Field("topic_length", "B", "bytes"))
APP_LENGTH = Layout(Field("app_length", "B", "bytes"))
BUSINESS_ID_LENGTH = Layout(Field("business_id_length", "B", "bytes"))
PROPERTIES_LENGTH = Layout(Field("properties_length", "H", "bytes"))
FILLER = Layout(Field("total_size", "I", "bytes left in the file"), Field("magic", "H", "Magic.FILLER"))

assert HEAD.size == 63
assert (HEAD.offset_of("journal_offset"), HEAD.offset_of("client_ip"), HEAD.offset_of("send_timestamp")) == (10, 27, 39)
assert (FILLER.size, FILLER.offset_of("magic")) == (6, HEAD.offset_of("magic"))

BODY_START = HEAD.size + BODY_LENGTH.size
END_RESERVE = FILLER.size
"""Bytes that stay free after the last record of a file, so that a FILLER always fits."""
LENGTHS = (BODY_LENGTH, TOPIC_LENGTH, APP_LENGTH, BUSINESS_ID_LENGTH, PROPERTIES_LENGTH)
"""Lengths of the variable parts, in their order."""
MIN_RECORD_SIZE = HEAD.size + sum(layout.size for layout in LENGTHS)
assert (BODY_START, MIN_RECORD_SIZE) == (67, 72)

MAX_BODY_SIZE = 4 << 20
"""The broker refuses a larger body, after compression."""
MAX_QUEUE_ID = 0xFF
_DELAYS = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class NewJournalMessage:
    """Message to be appended, as a producer defines it. The append sets its queue, offsets, CRC and the broker's times.

    Attributes:
        topic: topic of the message.
        body: body in stored form; a compressed body needs `is_compressed`.
        send_timestamp: ms since 1970.
        client_address: IPv4 address.
        app: application of the producer.
        business_id: key of the message; it determines the queue of an ordered message.
        properties: pairs in order; keys may repeat.
    """

    topic: str
    body: bytes
    send_timestamp: int
    client_address: Host
    app: str = ""
    business_id: str = ""
    business_tag: int = 0
    priority: int = 0
    is_compressed: bool = False
    is_ordered: bool = False
    properties: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class JournalMessage:
    """Message as stored in a journal record."""

    size: int
    sys_flag: int
    business_tag: int
    priority: int
    journal_offset: int
    queue_id: int
    queue_offset: int
    client_address: Host
    server_address: Host
    send_timestamp: int
    receive_timestamp: int
    store_timestamp: int
    body_crc: int
    body: bytes = field(repr=False)
    topic: str
    app: str
    business_id: str
    raw_properties: bytes = field(repr=False)

    @property
    def is_compressed(self) -> bool:
        """True if the stored body is a zlib stream."""
        return bool(self.sys_flag & COMPRESSED)

    @property
    def is_ordered(self) -> bool:
        """True if the message's business id determined its queue."""
        return bool(self.sys_flag & ORDERED)

    @property
    def property_pairs(self) -> Pairs:
        """All properties in stored order, including repeated keys."""
        return parse_properties(self.raw_properties)

    @property
    def properties(self) -> dict[str, str]:
        """All properties; if a key is repeated, its last value."""
        return dict(self.property_pairs)


class RecordParts(NamedTuple):
    """Positions and lengths of a record's parts of variable size in the buffer."""

    body: int
    body_length: int
    topic: int
    topic_length: int
    app: int
    app_length: int
    business_id: int
    business_id_length: int
    properties: int
    properties_length: int
    end: int


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Return the checksum of a body, as stored in a record."""
    return zlib.crc32(body)


def locate_parts(buffer: ReadableBuffer, offset: int, total_size: int) -> RecordParts:
    """Return the positions of a record's variable parts; raise an error if their lengths do not add up to its size.

    Args:
        offset: offset of the record's first byte.
        total_size: size of the record, at least MIN_RECORD_SIZE, and at most the size of the buffer after `offset`.

    Raises:
        LayoutError: if a part exceeds the record, or the sum is not `total_size`.
    """
    position = offset + HEAD.size
    # Each part must leave room for the lengths of the parts after it.
    room = total_size - MIN_RECORD_SIZE
    places = []
    for layout in LENGTHS:
        length = layout.unpack(buffer, position)[0]
        is_last = layout is PROPERTIES_LENGTH
        if length > room or (is_last and length != room):
            expected = f"{room}" if is_last else f"0 to {room}"
            raise LayoutError(layout.fields[0].name, position, expected, f"{length}")
        position += layout.size
        places += [position, length]
        position += length
        room -= length
    return RecordParts._make([*places, offset + total_size])


def parse_message(
    buffer: ReadableBuffer, offset: int = 0, *, verify_crc: bool = True
) -> tuple[JournalMessage, int] | None:
    """Parse the record at `offset`, and return it with its size.

    Args:
        buffer: bytes of a journal file.
        offset: offset of the record's first byte.
        verify_crc: whether to verify the body's checksum.

    Returns:
        The message and its size, or None if the record is incomplete.

    Raises:
        LayoutError: if the bytes are not a record; a FILLER is not.
    """
    available = len(buffer) - offset
    if available < FILLER.size:
        return None
    total_size, magic = FILLER.unpack(buffer, offset)
    if magic != Magic.MESSAGE:
        raise LayoutError("magic", offset + FILLER.offset_of("magic"), "1234", f"{magic:04X}")
    if total_size < MIN_RECORD_SIZE:
        raise LayoutError("total_size", offset, f"at least {MIN_RECORD_SIZE} bytes", f"{total_size}")
    if available < total_size:
        return None
    (_, _, sys_flag, tag, priority, journal_offset, queue_id, queue_offset, client_ip, client_port, server_ip,
     server_port, sent, receive_delay, store_delay, stored_crc) = HEAD.unpack(buffer, offset)  # fmt: skip
    parts = locate_parts(buffer, offset, total_size)
    view = memoryview(buffer)
    body = bytes(view[parts.body : parts.body + parts.body_length])
    if verify_crc and (found := body_crc(body)) != stored_crc:
        position = offset + HEAD.offset_of("body_crc")
        raise LayoutError("body_crc", position, f"{found} for these {len(body)} bytes", f"{stored_crc}")
    message = JournalMessage(
        size=total_size,
        sys_flag=sys_flag,
        business_tag=tag,
        priority=priority,
        journal_offset=journal_offset,
        queue_id=queue_id,
        queue_offset=queue_offset,
        client_address=Host(client_ip.to_bytes(4, "big"), client_port),
        server_address=Host(server_ip.to_bytes(4, "big"), server_port),
        send_timestamp=sent,
        receive_timestamp=sent + receive_delay,
        store_timestamp=sent + store_delay,
        body_crc=stored_crc,
        body=body,
        topic=_decode_text(view, parts.topic, parts.topic_length),
        app=_decode_text(view, parts.app, parts.app_length),
        business_id=_decode_text(view, parts.business_id, parts.business_id_length),
        raw_properties=bytes(view[parts.properties : parts.end]),
    )
    return message, total_size


def _decode_text(view: memoryview, start: int, length: int) -> str:
    return str(view[start : start + length], "utf-8", "replace")


def stored_delay_ms(timestamp: int, send_timestamp: int) -> int:
    """Return a broker's time as a record stores it: ms after the producer's send time, clamped to an int32."""
    minimum, maximum = _DELAYS
    return max(minimum, min(timestamp - send_timestamp, maximum))


def serialize_message(
    message: NewJournalMessage,
    *,
    queue_id: int,
    queue_offset: int,
    journal_offset: int,
    receive_timestamp: int,
    store_timestamp: int,
    server_address: Host,
) -> bytes:
    """Serialize the record of a message at its position in the journal.

    Raises:
        UnserializableError: if a text, a number or an address does not fit in the format.
    """
    sent = message.send_timestamp
    topic = encode_text("topic", message.topic)
    app = encode_text("app", message.app)
    business_id = encode_text("business_id", message.business_id)
    properties = serialize_properties(message.properties) if message.properties else b""
    body = message.body
    values = (
        MIN_RECORD_SIZE + len(body) + len(topic) + len(app) + len(business_id) + len(properties),
        Magic.MESSAGE,
        COMPRESSED * message.is_compressed | ORDERED * message.is_ordered,
        message.business_tag,
        message.priority,
        journal_offset,
        queue_id,
        queue_offset,
        *_encode_address("client_ip", message.client_address),
        *_encode_address("server_ip", server_address),
        sent,
        stored_delay_ms(receive_timestamp, sent),
        stored_delay_ms(store_timestamp, sent),
        body_crc(body),
    )
    try:
        head = HEAD.pack(*values)
    except struct.error as error:
        raise _value_range_error(values) from error
    pieces = [head]
    for layout, part in zip(LENGTHS, (body, topic, app, business_id, properties), strict=True):
        pieces += layout.pack(len(part)), part
    return b"".join(pieces)


def _value_range_error(values: Sequence[int]) -> UnserializableError:
    """Return an error for the first of the given values that does not fit in its field."""
    for (name, code, _), value in zip(HEAD.fields, values, strict=True):
        bits = 8 * struct.calcsize(">" + code)
        numbers = range(1 << bits) if code.isupper() else range(-(1 << bits - 1), 1 << bits - 1)
        if value not in numbers:
            return UnserializableError(name, f"{numbers.start} to {numbers.stop - 1}", f"{value}")
    raise AssertionError("expected a value that does not fit in its field, found none")


def encode_text(name: str, text: str) -> bytes:
    """Encode a text as UTF-8, and check that it has at most 255 bytes, because its length is stored in one byte.

    Raises:
        UnserializableError: if it is longer, or cannot be encoded in UTF-8.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UnserializableError(name, "text that can be encoded in UTF-8", repr(text)) from error
    if len(data) > 0xFF:
        raise UnserializableError(name, "at most 255 bytes", f"{len(data)} bytes")
    return data


def _encode_address(field_name: str, host: Host) -> tuple[int, int]:
    if len(host.address) != 4:
        raise UnserializableError(field_name, "an IPv4 address", str(host))
    return int.from_bytes(host.address, "big"), host.port


def serialize_filler(bytes_left: int) -> bytes:
    """Return the first 6 bytes of the FILLER that fills the last `bytes_left` bytes of a file; the rest is zeros."""
    return FILLER.pack(bytes_left, Magic.FILLER)


def compress_body(body: bytes, level: int = DEFAULT_LEVEL) -> tuple[bytes, bool]:
    """Compress a body if it is large enough and shrinks; return the stored bytes and whether they are compressed."""
    if len(body) <= COMPRESSED_ABOVE_BYTES:
        return body, False
    compressed = zlib.compress(body, level)
    return (compressed, True) if len(compressed) < len(body) else (body, False)
