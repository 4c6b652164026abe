"""Journal records: what a JMQ broker appends for every message of every topic.

A record, big-endian; 63 fixed bytes, then five parts, each behind its length:

    offset  size  field
         0     4  total_size        bytes, this field included
         4     2  magic             1234
         6     1  sys_flag          0x01 body compressed (zlib), 0x02 ordered; the rest reserved
         7     2  business_tag      the application's own number
         9     1  priority          0 is the lowest
        10     8  journal_offset    of this record: file start + position
        18     1  queue_id
        19     8  queue_offset      number of the message in its queue, from 0
        27     6  client address    4 bytes IPv4, 2 bytes port
        33     6  server address    likewise
        39     8  send_timestamp    ms since 1970, producer's clock
        47     4  receive_delay     ms from send_timestamp to the receipt, broker's clock; may be below 0
        51     4  store_delay       ms from send_timestamp to the append, broker's clock; may be below 0
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
               p  properties        see journal_properties.py

Records follow one another without padding in files of 128 MiB, and never cross the end of a file: where the next one
(and 6 bytes) does not fit, a FILLER stands (`total_size` = all bytes left, `magic` = BBBB), and the journal goes on in
the next file. A file that is still written ends in zeros. The CRC covers the body alone. A delay that does not fit an
int32 (24.8 days) is stored as the nearest that does.

The fields, their sizes and their order are JMQ's. Byte order, magic, the split of an address and the kind of CRC are
not published; those above are this project's.
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


class Magic(IntEnum):
    """The second field of everything in a journal."""

    MESSAGE = 0x1234
    FILLER = 0xBBBB


COMPRESSED = 0x01
ORDERED = 0x02

HEAD = Layout(
    Field("total_size", "I", "bytes of the record"),
    Field("magic", "H", "see Magic"),
    Field("sys_flag", "B", "COMPRESSED, ORDERED; reserved bits are written as 0, and ignored"),
    Field("business_tag", "H", "the application's own; brokers never look at it"),
    Field("priority", "B", "0 is the lowest"),
    Field("journal_offset", "Q", "bytes from the journal's logical start"),
    Field("queue_id", "B", ""),
    Field("queue_offset", "Q", "number of the message in its queue"),
    Field("client_ip", "I", "IPv4"),
    Field("client_port", "H", ""),
    Field("server_ip", "I", "IPv4"),
    Field("server_port", "H", ""),
    Field("send_timestamp", "q", "ms, producer's clock"),
    Field("receive_delay", "i", "ms from send_timestamp, broker's clock"),
    Field("store_delay", "i", "ms from send_timestamp, broker's clock"),
    Field("body_crc", "Q", "CRC-32 of the stored body"),
)
"""Followed by body, topic, application, business id and properties, each behind its length."""
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
"""Bytes that stay free behind the last record of a file, so that a FILLER always fits."""
LENGTHS = (BODY_LENGTH, TOPIC_LENGTH, APP_LENGTH, BUSINESS_ID_LENGTH, PROPERTIES_LENGTH)
"""The lengths of the variable parts, in their order."""
MIN_RECORD_SIZE = HEAD.size + sum(layout.size for layout in LENGTHS)
assert (BODY_START, MIN_RECORD_SIZE) == (67, 72)

MAX_BODY_SIZE = 4 << 20
"""A larger body, after compression, is refused by the broker."""
MAX_QUEUE_ID = 0xFF
_DELAYS = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class NewJournalMessage:
    """What a producer decides about a message; queue, offsets, CRC and the broker's times follow from the append.

    Attributes:
        topic: where it is stored.
        body: as it is to be stored; compressed bodies come compressed, with `is_compressed` set.
        send_timestamp: ms since 1970.
        client_address: IPv4.
        app: the producer's application.
        business_id: the key that it can be found by; it chooses the queue of an ordered message.
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
    """One record as it is stored."""

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
        """Whether the stored body is a zlib stream."""
        return bool(self.sys_flag & COMPRESSED)

    @property
    def is_ordered(self) -> bool:
        """Whether its business id chose its queue."""
        return bool(self.sys_flag & ORDERED)

    @property
    def property_pairs(self) -> Pairs:
        """All properties in stored order, repeated keys included."""
        return parse_properties(self.raw_properties)

    @property
    def properties(self) -> dict[str, str]:
        """All properties; of a repeated key, the last value."""
        return dict(self.property_pairs)


class Parts(NamedTuple):
    """Where the variable parts of a record lie, as positions in the buffer it was found in."""

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
    """The checksum that a record stores for a body."""
    return zlib.crc32(body)


def locate_parts(buffer: ReadableBuffer, offset: int, total_size: int) -> Parts:
    """Where the parts of a record lie, once its lengths are seen to add up to its size.

    Args:
        buffer: holds the whole record.
        offset: the record's first byte.
        total_size: the record's, at least MIN_RECORD_SIZE, and not larger than what the buffer holds behind `offset`.

    Raises:
        LayoutError: at the first length that leaves the record, or where the sum is not `total_size`.
    """
    position = offset + HEAD.size
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
    return Parts._make([*places, offset + total_size])


def parse_message(
    buffer: ReadableBuffer, offset: int = 0, *, verify_crc: bool = True
) -> tuple[JournalMessage, int] | None:
    """The record at `offset`, and its size.

    Args:
        buffer: bytes of a journal file.
        offset: the record's first byte.
        verify_crc: compare the body with its checksum.

    Returns:
        The message and the bytes it takes, or None where the record is not all here yet.

    Raises:
        LayoutError: if the bytes are no record, whatever may follow; FILLER is not a record.
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
        topic=_text(view, parts.topic, parts.topic_length),
        app=_text(view, parts.app, parts.app_length),
        business_id=_text(view, parts.business_id, parts.business_id_length),
        raw_properties=bytes(view[parts.properties : parts.end]),
    )
    return message, total_size


def _text(view: memoryview, start: int, length: int) -> str:
    return str(view[start : start + length], "utf-8", "replace")


def delay_of(timestamp: int, send_timestamp: int) -> int:
    """A time of the broker's as a record stores it: relative to the producer's, within an int32."""
    least, most = _DELAYS
    return max(least, min(timestamp - send_timestamp, most))


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
    """The record for a message at its place in the journal.

    Raises:
        UnserializableError: for a text, a number or an address that the format has no room for.
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
        *_address("client_ip", message.client_address),
        *_address("server_ip", server_address),
        sent,
        delay_of(receive_timestamp, sent),
        delay_of(store_timestamp, sent),
        body_crc(body),
    )
    try:
        head = HEAD.pack(*values)
    except struct.error as error:
        raise _without_room(values) from error
    pieces = [head]
    for layout, part in zip(LENGTHS, (body, topic, app, business_id, properties), strict=True):
        pieces += layout.pack(len(part)), part
    return b"".join(pieces)


def _without_room(values: Sequence[int]) -> UnserializableError:
    """What is wrong with the first value that its field has no room for."""
    for (name, code, _), value in zip(HEAD.fields, values, strict=True):
        bits = 8 * struct.calcsize(">" + code)
        numbers = range(1 << bits) if code.isupper() else range(-(1 << bits - 1), 1 << bits - 1)
        if value not in numbers:
            return UnserializableError(name, f"{numbers.start} to {numbers.stop - 1}", f"{value}")
    raise AssertionError("every value has room in its field")


def encode_text(name: str, text: str) -> bytes:
    """Return a text of at most 255 bytes, which has its length in one byte before it.

    Raises:
        UnserializableError: if it is longer, or UTF-8 cannot say it.
    """
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise UnserializableError(name, "text that UTF-8 can say", repr(text)) from error
    if len(data) > 0xFF:
        raise UnserializableError(name, "at most 255 bytes", f"{len(data)} bytes")
    return data


def _address(field_name: str, host: Host) -> tuple[int, int]:
    if len(host.address) != 4:
        raise UnserializableError(field_name, "an IPv4 address", str(host))
    return int.from_bytes(host.address, "big"), host.port


def serialize_filler(bytes_left: int) -> bytes:
    """The FILLER that closes a file with so many bytes left; the bytes behind its 6 stay zeros."""
    return FILLER.pack(bytes_left, Magic.FILLER)
