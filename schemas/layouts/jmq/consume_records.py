"""Consume records: results of the deliveries of messages to applications.

`consume/<20 digits>`: one record for each delivery that an application has finished, in files of 16 MiB, each named by
the offset of its first byte. JMQ logs consumption for its archive, but does not publish the format; this one is this
project's. A record, big-endian:

    offset  size  field
         0     2  total_size         bytes, this field included
         2     2  magic              C05E
         4     1  outcome            1 consumed, 2 failed (will be retried), 3 given up (dead letter)
         5     1  queue_id
         6     8  queue_offset
        14     8  journal_offset     of the message's record
        22     8  consume_timestamp  ms since 1970, broker's clock
        30     2  attempt            1 for the first delivery
        32     6  client address     4 bytes IPv4, 2 bytes port
        38     4  record_crc         CRC-32 of the whole record without this field
        42     1  topic_length
               t  topic              UTF-8
               1  app_length
               a  app                the consumer's application, UTF-8

A record does not cross the end of a file: the rest of a file is zeros, and the newest file ends where zeros begin.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.jmq.journal import encode_text
from commitlake.schemas.layouts.rocketmq.hosts import Host

FOLDER = "consume"
DEFAULT_FILE_SIZE = 16 << 20
MAGIC = 0xC05E

HEAD = Layout(
    Field("total_size", "H", "bytes of the record"),
    Field("magic", "H", "MAGIC"),
    Field("outcome", "B", "see Outcome"),
    Field("queue_id", "B", ""),
    Field("queue_offset", "Q", "offset of the message in its queue"),
    Field("journal_offset", "Q", "journal offset of the message's record, bytes"),
    Field("consume_timestamp", "q", "ms, broker's clock"),
    Field("attempt", "H", "1 for the first delivery"),
    Field("client_ip", "I", "IPv4"),
    Field("client_port", "H", ""),
    Field("record_crc", "I", "CRC-32 of everything else"),
)
TEXT_LENGTH = Layout(Field("text_length", "B", "bytes"))
CRC_POSITION = HEAD.offset_of("record_crc")
MIN_RECORD_SIZE = HEAD.size + 2 * TEXT_LENGTH.size
MAX_RECORD_SIZE = MIN_RECORD_SIZE + 2 * 0xFF
MAX_ATTEMPT = 0xFFFF
assert (HEAD.size, CRC_POSITION, MIN_RECORD_SIZE) == (42, 38, 44)


class DeliveryOutcome(IntEnum):
    """Outcome of one delivery of a message."""

    CONSUMED = 1
    FAILED = 2
    GIVEN_UP = 3


@dataclass(frozen=True, slots=True)
class Consumption:
    """Record of one delivery of a message to an application, with its outcome."""

    topic: str
    queue_id: int
    queue_offset: int
    journal_offset: int
    app: str
    outcome: DeliveryOutcome
    consume_timestamp: int
    attempt: int
    client_address: Host


def _compute_crc(record: bytes | bytearray | memoryview) -> int:
    return zlib.crc32(record[HEAD.size :], zlib.crc32(record[:CRC_POSITION]))


def parse_consumption(buffer: ReadableBuffer, offset: int = 0) -> tuple[Consumption, int] | None:
    """Parse the consume record at `offset`, and return it with its size.

    Returns:
        The record and its size, or None if the record is incomplete.

    Raises:
        LayoutError: if the bytes are not a record; zeros are not.
    """
    available = len(buffer) - offset
    if available < HEAD.size:
        return None
    values = HEAD.unpack(buffer, offset)
    total_size, magic, outcome = values[:3]
    if magic != MAGIC:
        raise LayoutError("magic", offset + HEAD.offset_of("magic"), f"{MAGIC:04X}", f"{magic:04X}")
    if not MIN_RECORD_SIZE <= total_size <= MAX_RECORD_SIZE:
        raise LayoutError("total_size", offset, f"{MIN_RECORD_SIZE} to {MAX_RECORD_SIZE}", f"{total_size}")
    if available < total_size:
        return None
    record = memoryview(buffer)[offset : offset + total_size]
    if (found := _compute_crc(record)) != values[-1]:
        raise LayoutError("record_crc", offset + CRC_POSITION, f"{found} for these bytes", f"{values[-1]}")
    if outcome not in DeliveryOutcome._value2member_map_:
        raise LayoutError("outcome", offset + HEAD.offset_of("outcome"), "1 to 3", f"{outcome}")
    topic_end = HEAD.size + 1 + record[HEAD.size]
    if topic_end >= total_size or topic_end + 1 + record[topic_end] != total_size:
        raise LayoutError("text_length", offset + HEAD.size, f"two texts in {total_size} bytes", "others")
    _, _, _, queue_id, queue_offset, journal_offset, timestamp, attempt, ip, port, _ = values
    consumption = Consumption(
        topic=str(record[HEAD.size + 1 : topic_end], "utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        journal_offset=journal_offset,
        app=str(record[topic_end + 1 :], "utf-8", "replace"),
        outcome=DeliveryOutcome(outcome),
        consume_timestamp=timestamp,
        attempt=attempt,
        client_address=Host(ip.to_bytes(4, "big"), port),
    )
    return consumption, total_size


def serialize_consumption(consumption: Consumption) -> bytes:
    """Serialize a consume record.

    Raises:
        UnserializableError: if a text, a number or an address does not fit in the format.
    """
    address = consumption.client_address
    if address.is_v6:
        raise UnserializableError("client_ip", "an IPv4 address", str(address))
    encoded = [encode_text(name, getattr(consumption, name)) for name in ("topic", "app")]
    texts = b"".join(TEXT_LENGTH.pack(len(text)) + text for text in encoded)
    try:
        head = HEAD.pack(
            HEAD.size + len(texts), MAGIC, consumption.outcome, consumption.queue_id, consumption.queue_offset,
            consumption.journal_offset, consumption.consume_timestamp, consumption.attempt,
            int.from_bytes(address.address, "big"), address.port, 0,
        )  # fmt: skip
    except struct.error as error:
        raise UnserializableError("consumption", "numbers that fit their fields", str(error)) from error
    crc = _compute_crc(head + texts)
    return head[:CRC_POSITION] + crc.to_bytes(4, "big") + texts
