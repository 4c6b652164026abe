"""CommitLog records, which a RocketMQ or BoltMQ broker appends for each message of any topic.

A record, big-endian, IPv4 hosts (an IPv6 host takes 20 bytes instead of 8):

    offset  size  field
         0     4  total_size                   bytes, this field included
         4     4  magic                        DAA320A7 (V1), DAA320AB (V2: topic length in 2 bytes)
         8     4  body_crc                     CRC-32 of the stored body, top bit cleared
        12     4  queue_id
        16     4  flag                         the application's flag
        20     8  queue_offset                 offset of the message in its queue, from 0
        28     8  physical_offset              of this record: segment start + position
        36     4  sys_flag                     see sysflag.py
        40     8  born_timestamp               ms since 1970, producer's clock
        48     8  born_host
        56     8  store_timestamp              ms since 1970, broker's clock
        64     8  store_host
        72     4  reconsume_times
        76     8  prepared_transaction_offset
        84     4  body_length
        88     n  body                         as stored, compressed or not
               1  topic_length                 2 in V2
               t  topic                        UTF-8
               2  properties_length            int16
               p  properties                   see properties.py

Records follow one another without padding, and never cross the end of a segment: if the next one (and 8 bytes) does not
fit, a BLANK follows (`total_size` = all bytes left, `magic` = CBD43194), and the log continues in the next segment. A
segment that is still being written ends with zeros. The CRC covers only the body. This is RocketMQ's dialect;
boltmq/dialect.py declares the differences of BoltMQ's. Source: CommitLog, MessageExtEncoder, MessageDecoder of RocketMQ
4.9.7 and 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.boltmq.dialect import (
    DIALECT_BY_MAGIC,
    MESSAGE_MAGIC_NAMES,
    MESSAGE_MAGICS,
    ROCKETMQ,
    Dialect,
    Magic,
)
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.rocketmq import properties as props
from commitlake.schemas.layouts.rocketmq.hosts import Host, host_size, parse_host, serialize_host
from commitlake.schemas.layouts.rocketmq.message_id import serialize_message_id
from commitlake.schemas.layouts.rocketmq.sysflag import BORN_HOST_V6, STORE_HOST_V6, BodyCodec, body_codec

CRC_MASK = ROCKETMQ.crc_mask

HEAD = Layout(
    Field("total_size", "i", "bytes of the record"),
    Field("magic", "i", "see Magic"),
    Field("body_crc", "i", "CRC-32 of the stored body, with the dialect's mask"),
    Field("queue_id", "i", ""),
    Field("flag", "i", "the application's flag; ignored by brokers"),
    Field("queue_offset", "q", "offset of the message in its queue"),
    Field("physical_offset", "q", "bytes from the log's logical start"),
    Field("sys_flag", "i", "see sysflag.py"),
    Field("born_timestamp", "q", "ms, producer's clock"),
)
"""Followed by the born host."""
STORED = Layout(Field("store_timestamp", "q", "ms, broker's clock"))
"""Followed by the store host."""
TAIL = Layout(
    Field("reconsume_times", "i", "failed consumptions so far"),
    Field("prepared_transaction_offset", "q", "commit records: physical offset of the half record"),
    Field("body_length", "i", "bytes"),
)
"""Followed by body, topic and properties; topic and properties each after their length."""
TOPIC_LENGTH = {
    Magic.V1: Layout(Field("topic_length", "B", "bytes")),
    Magic.V2: Layout(Field("topic_length", "H", "bytes")),
    Magic.BOLTMQ: Layout(Field("topic_length", "B", "bytes")),
}
PROPERTIES_LENGTH = Layout(Field("properties_length", "h", "bytes"))
BLANK = Layout(Field("total_size", "i", "bytes left in the segment"), Field("magic", "i", "magic of the dialect"))

assert HEAD.offset_of("physical_offset") == 28
assert (HEAD.size, HEAD.size + 8 + STORED.size + 8 + TAIL.size) == (48, 88)
assert BLANK.size == 8

_MAGIC_AND_CRC = Layout(*HEAD.fields[1:3])
_MAGIC_AND_CRC_AT = HEAD.offset_of("magic")

END_RESERVE = BLANK.size
"""Bytes that stay free after the last record of a segment, so that a BLANK always fits."""
MAX_V1_TOPIC_LENGTH = 127
FIXED_SIZE = HEAD.size + STORED.size + TAIL.size + PROPERTIES_LENGTH.size
MIN_RECORD_SIZE = FIXED_SIZE + 2 * host_size(is_v6=False) + 1
assert MIN_RECORD_SIZE == 91


@dataclass(frozen=True, slots=True)
class NewMessage:
    """Message to be appended, as a producer defines it. The append sets its sizes, offsets, CRC and store time.

    Attributes:
        topic: topic in which it is stored; for a delayed or failed message an internal topic of the broker.
        body: body in stored form; a compressed body needs its bits in `sys_flag`.
        born_timestamp: ms since 1970.
        properties: pairs in order; keys may repeat.
    """

    topic: str
    body: bytes
    born_timestamp: int
    born_host: Host
    queue_id: int = 0
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """Message as stored in a CommitLog record; fields have the names of columns of the table `messages`.

    `body_crc` is the stored integer, which in BoltMQ's dialect can be negative.
    """

    size: int
    magic: Magic
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: Host
    store_timestamp: int
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes = field(repr=False)
    topic: str
    raw_properties: bytes = field(repr=False)

    @property
    def dialect(self) -> Dialect:
        """Dialect of the record, which its magic code shows."""
        return DIALECT_BY_MAGIC[self.magic]

    @property
    def msg_id(self) -> str:
        """Message id that brokers return: store host and physical offset of the record, in hex."""
        return serialize_message_id(self.store_host, self.physical_offset)

    @property
    def body_codec(self) -> BodyCodec:
        """Compression of the stored body."""
        return body_codec(self.sys_flag)

    @property
    def property_pairs(self) -> props.Pairs:
        """All properties in stored order, including repeated keys."""
        return props.parse_properties(self.raw_properties)

    @property
    def properties(self) -> dict[str, str]:
        """All properties as RocketMQ sees them: if a key is repeated, its last value."""
        return dict(self.property_pairs)

    @property
    def unique_key(self) -> str | None:
        """Message id that the producer's client has generated, from the property UNIQ_KEY.

        It is the first one in the properties, because a broker may append a batch's UNIQ_KEY.
        """
        return props.first_value(self.property_pairs, props.UNIQ_KEY)

    @property
    def tags(self) -> str | None:
        """Tags of the message, from its property TAGS; None if there are none."""
        return self.properties.get(props.TAGS)

    @property
    def keys(self) -> list[str] | None:
        """Business keys, None if there is no KEYS property."""
        value = self.properties.get(props.KEYS)
        return None if value is None else props.split_keys(value)


class RecordParts(NamedTuple):
    """Positions and lengths of a record's parts of variable size in the buffer."""

    born_host: int
    store_host: int
    body: int
    body_length: int
    topic: int
    topic_length: int
    properties: int
    properties_length: int
    end: int


def body_crc(body: bytes | bytearray | memoryview) -> int:
    """Return the checksum that a record of RocketMQ stores for a body; 0 for an empty body."""
    return ROCKETMQ.body_crc(body)


def locate_parts(buffer: ReadableBuffer, offset: int, magic: int, sys_flag: int, total_size: int) -> RecordParts:
    """Return the positions of a record's variable parts; raise an error if their lengths do not add up to its size.

    Args:
        offset: offset of the record's first byte.
        magic: magic of the record.
        sys_flag: flags of the record, which determine the sizes of its hosts.
        total_size: size of the record, at most the size of the buffer after `offset`.

    Raises:
        LayoutError: if a part exceeds the record, or the sum is not `total_size`.
    """
    end = offset + total_size
    born_host = offset + HEAD.size
    store_host = born_host + host_size(bool(sys_flag & BORN_HOST_V6)) + STORED.size
    tail = store_host + host_size(bool(sys_flag & STORE_HOST_V6))
    body = tail + TAIL.size
    topic_layout = TOPIC_LENGTH[Magic(magic)]
    fixed_rest = topic_layout.size + PROPERTIES_LENGTH.size
    room = end - body - fixed_rest
    # Before any length is read: a smaller record would be read beyond its end.
    if room < 0:
        raise LayoutError("total_size", offset, f"at least {total_size - room} bytes", f"{total_size}")
    body_length = TAIL.unpack(buffer, tail)[2]
    if not 0 <= body_length <= room:
        raise LayoutError("body_length", body - 4, f"0 to {room}", f"{body_length}")
    topic = body + body_length + topic_layout.size
    topic_length = topic_layout.unpack(buffer, topic - topic_layout.size)[0]
    if topic_length > room - body_length:
        raise LayoutError("topic_length", topic - topic_layout.size, f"0 to {room - body_length}", f"{topic_length}")
    properties = topic + topic_length + PROPERTIES_LENGTH.size
    properties_length = PROPERTIES_LENGTH.unpack(buffer, properties - PROPERTIES_LENGTH.size)[0]
    if properties_length != end - properties:
        position = properties - PROPERTIES_LENGTH.size
        raise LayoutError("properties_length", position, f"{end - properties}", f"{properties_length}")
    return RecordParts(
        born_host, store_host, body, body_length, topic, topic_length, properties, properties_length, end
    )


def parse_message(buffer: ReadableBuffer, offset: int = 0, *, verify_crc: bool = True) -> tuple[Message, int] | None:
    """Parse the record at `offset`, and return it with its size.

    Args:
        buffer: bytes of a segment.
        offset: offset of the record's first byte.
        verify_crc: whether to verify the body's checksum.

    Returns:
        The message and its size, or None if the record is incomplete.

    Raises:
        LayoutError: if the bytes are not a record; a BLANK is not.
    """
    available = len(buffer) - offset
    if available < BLANK.size:
        return None
    total_size, magic = BLANK.unpack(buffer, offset)
    if magic not in MESSAGE_MAGICS:
        raise LayoutError("magic", offset + 4, MESSAGE_MAGIC_NAMES, f"{magic & 0xFFFFFFFF:08X}")
    if total_size < MIN_RECORD_SIZE:
        raise LayoutError("total_size", offset, f"at least {MIN_RECORD_SIZE} bytes", f"{total_size}")
    if available < total_size:
        return None
    head = HEAD.unpack(buffer, offset)
    sys_flag = head[7]
    parts = locate_parts(buffer, offset, magic, sys_flag, total_size)
    view = memoryview(buffer)
    body = bytes(view[parts.body : parts.body + parts.body_length])
    stored_crc = head[2]
    if verify_crc and (crc := DIALECT_BY_MAGIC[magic].body_crc(body)) != stored_crc:
        raise LayoutError("body_crc", offset + 8, f"{crc} for these {len(body)} bytes", f"{stored_crc}")
    born_host = parse_host(view, parts.born_host, bool(sys_flag & BORN_HOST_V6))
    store_host = parse_host(view, parts.store_host, bool(sys_flag & STORE_HOST_V6))
    reconsume_times, prepared_transaction_offset, _ = TAIL.unpack(buffer, parts.body - TAIL.size)
    message = Message(
        size=total_size,
        magic=Magic(magic),
        body_crc=stored_crc,
        queue_id=head[3],
        flag=head[4],
        queue_offset=head[5],
        physical_offset=head[6],
        sys_flag=sys_flag,
        born_timestamp=head[8],
        born_host=born_host,
        store_timestamp=STORED.unpack(buffer, parts.store_host - STORED.size)[0],
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        body=body,
        topic=bytes(view[parts.topic : parts.topic + parts.topic_length]).decode("utf-8", "replace"),
        raw_properties=bytes(view[parts.properties : parts.end]),
    )
    return message, total_size


def serialize_message(
    message: NewMessage,
    *,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    store_host: Host,
    dialect: Dialect = ROCKETMQ,
) -> bytes:
    """Serialize the record of a message at its position in the log.

    In RocketMQ's dialect, V2 is used if the topic has more than 127 characters, as by brokers since 5.1.0. The host
    bits of `sys_flag` are set from the hosts; the caller sets the other bits.

    Raises:
        UnserializableError: if topic, hosts or properties do not fit in the format.
    """
    sys_flag = message.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6)
    sys_flag |= BORN_HOST_V6 if message.born_host.is_v6 else 0
    sys_flag |= STORE_HOST_V6 if store_host.is_v6 else 0
    if not dialect.has_v6_hosts and (message.born_host.is_v6 or store_host.is_v6):
        raise UnserializableError("hosts", f"IPv4 in a {dialect.name} record", f"{message.born_host}, {store_host}")
    topic = message.topic.encode()
    magic = _choose_magic(message.topic, dialect)
    topic_layout = TOPIC_LENGTH[magic]
    limit = (1 << 8 * topic_layout.size) - 1
    if not 0 < len(topic) <= limit:
        raise UnserializableError("topic", f"1 to {limit} bytes", f"{len(topic)} bytes")
    properties = props.serialize_properties(message.properties)
    variable = len(message.body) + topic_layout.size + len(topic) + len(properties)
    total_size = FIXED_SIZE + host_size(message.born_host.is_v6) + host_size(store_host.is_v6) + variable
    return b"".join(
        (
            HEAD.pack(
                total_size,
                magic,
                dialect.body_crc(message.body),
                message.queue_id,
                message.flag,
                queue_offset,
                physical_offset,
                sys_flag,
                message.born_timestamp,
            ),
            serialize_host(message.born_host),
            STORED.pack(store_timestamp),
            serialize_host(store_host),
            TAIL.pack(message.reconsume_times, message.prepared_transaction_offset, len(message.body)),
            message.body,
            topic_layout.pack(len(topic)),
            topic,
            PROPERTIES_LENGTH.pack(len(properties)),
            properties,
        )
    )


def _choose_magic(topic: str, dialect: Dialect) -> Magic:
    if len(topic) <= MAX_V1_TOPIC_LENGTH:
        return dialect.message
    if dialect.long_topic is None:
        expected = f"at most {MAX_V1_TOPIC_LENGTH} characters in a {dialect.name} record"
        raise UnserializableError("topic", expected, f"{len(topic)}")
    return dialect.long_topic


def serialize_blank(bytes_left: int, dialect: Dialect = ROCKETMQ) -> bytes:
    """Return the first 8 bytes of the BLANK that fills the last `bytes_left` bytes of a segment."""
    return BLANK.pack(bytes_left, dialect.blank)


def detect_segment_dialect(read_at: Callable[[int], ReadableBuffer]) -> Dialect | None:
    """Return the dialect of a segment's first two records, or of its only one; None if they differ or are missing.

    Two records are compared because a single flipped bit turns RocketMQ's magic into BoltMQ's.

    Args:
        read_at: returns the bytes of the segment at a position, as many as a BLANK has, or fewer at its end.
    """
    size, first = _parse_size_and_dialect(read_at(0))
    _, second = _parse_size_and_dialect(read_at(size)) if size >= MIN_RECORD_SIZE else (0, None)
    return first if second in (None, first) else None


def _parse_size_and_dialect(data: ReadableBuffer) -> tuple[int, Dialect | None]:
    if len(data) < BLANK.size:
        return 0, None
    size, magic = BLANK.unpack(data)
    return size, DIALECT_BY_MAGIC.get(magic)


def convert_to_dialect(record: bytes, dialect: Dialect) -> bytes:
    """Convert a complete record to another dialect, as its brokers would have stored it at the same position.

    Args:
        record: record that `parse_message` accepts.
        dialect: dialect of the result; it must have V2 if the record is V2.

    Raises:
        LayoutError: if the body does not match its checksum, because a new checksum would hide the damage.
    """
    parsed = parse_message(record)
    assert parsed is not None, "expected a complete record"
    message = parsed[0]
    if message.dialect is dialect:
        return record
    magic = dialect.message if TOPIC_LENGTH[message.magic].size == 1 else dialect.long_topic
    assert magic is not None, "expected a dialect with long topics"
    changed = _MAGIC_AND_CRC.pack(magic, dialect.body_crc(message.body))
    return record[:_MAGIC_AND_CRC_AT] + changed + record[_MAGIC_AND_CRC_AT + _MAGIC_AND_CRC.size :]
