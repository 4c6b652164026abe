"""Queue files of JMQ: 22-byte entries that point to the messages of a queue in the journal.

`queue/<topic>/<queueId>/<20 digits>`; entry i of a queue is at byte i * 22 of the queue, and a file's name is the byte
position of its first entry. Files have a fixed size (300,000 entries by default); unused entries are zero. The first
entry with an invalid CRC ends the queue; zeros do, because the CRC of 14 zero bytes is not 0. An entry of size 0 stands
for a message that is lost from the journal.

The id of a message is its place in a queue, `topic/queue/queueOffset@broker`, which is not stored in records.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.errors import LayoutError, UnserializableError
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.jmq.journal import MAX_QUEUE_ID

FOLDER = "queue"

ENTRY = Layout(
    Field("journal_offset", "Q", "journal offset of the record, bytes"),
    Field("size", "I", "size of the record, bytes"),
    Field("flag", "H", "not used, 0"),
    Field("entry_crc", "Q", "CRC-32 of the 14 bytes before it"),
)
assert ENTRY.size == 22
DEFAULT_FILE_SIZE = 300_000 * ENTRY.size

CRC_POSITION = ENTRY.offset_of("entry_crc")
"""Number of bytes that the CRC covers; the CRC follows them."""
_COVERED = Layout(*ENTRY.fields[:-1])
_CRC = Layout(ENTRY.fields[-1])
assert (CRC_POSITION, _COVERED.size, _CRC.size) == (14, 14, 8)


class JmqQueueEntry(NamedTuple):
    """Queue entry, which points to a message in the journal."""

    journal_offset: int
    size: int
    flag: int = 0

    @property
    def is_lost(self) -> bool:
        """True if the entry only fills the queue offset of a message that the journal lost."""
        return self.size == 0


def parse_entry(buffer: ReadableBuffer, offset: int = 0) -> JmqQueueEntry | None:
    """Parse the entry at `offset`; return None for zeros, which end the queue. The caller ensures that it has 22 bytes.

    Raises:
        LayoutError: if the CRC is invalid.
    """
    journal_offset, size, flag, stored = ENTRY.unpack(buffer, offset)
    if stored == zlib.crc32(memoryview(buffer)[offset : offset + CRC_POSITION]):
        return JmqQueueEntry(journal_offset, size, flag)
    if not (journal_offset or size or flag or stored):
        return None
    expected = zlib.crc32(memoryview(buffer)[offset : offset + CRC_POSITION])
    raise LayoutError("entry_crc", offset + CRC_POSITION, f"{expected}", f"{stored}")


def serialize_entry(entry: JmqQueueEntry) -> bytes:
    """Return the entry's 22 bytes."""
    covered = _COVERED.pack(*entry)
    return covered + _CRC.pack(zlib.crc32(covered))


def count_valid_entries(data: bytes) -> int:
    """Return the number of consecutive valid entries at the start of the data."""
    crc32, count = zlib.crc32, 0
    for position, (_, _, _, stored) in zip(
        range(0, len(data), ENTRY.size), ENTRY.struct.iter_unpack(data), strict=True
    ):
        if stored == 0 or stored != crc32(data[position : position + CRC_POSITION]):
            break
        count += 1
    return count


_MAX_QUEUE_OFFSET = (1 << 64) - 1


class MessageIdParts(NamedTuple):
    """Topic, queue, queue offset and broker of a message, as its message id states them."""

    topic: str
    queue_id: int
    queue_offset: int
    broker: str


def serialize_message_id(position: MessageIdParts) -> str:
    """Return the message id of a message: `topic/queue/queueOffset@broker`.

    Raises:
        UnserializableError: if the broker's name contains an `@`.
    """
    if "@" in position.broker:
        raise UnserializableError("broker", "a name without @", repr(position.broker))
    return f"{position.topic}/{position.queue_id}/{position.queue_offset}@{position.broker}"


def parse_message_id(text: str) -> MessageIdParts:
    """Parse a message id of the form `topic/queue/queueOffset@broker`; the topic may contain any character.

    Raises:
        LayoutError: if the text is not a message id.
    """
    place, at, broker = text.rpartition("@")
    parts = place.rsplit("/", 2)
    if not at or not broker or len(parts) != 3 or not parts[0]:
        raise LayoutError("message_id", 0, "topic/queue/queueOffset@broker", repr(text[:100]))
    topic, queue_id, queue_offset = parts[0], _parse_number(parts[1]), _parse_number(parts[2])
    if queue_id is None or queue_offset is None or queue_id > MAX_QUEUE_ID:
        raise LayoutError("message_id", 0, f"a queue from 0 to {MAX_QUEUE_ID} and a number in it", repr(text[:100]))
    return MessageIdParts(topic, queue_id, queue_offset, broker)


def _parse_number(text: str) -> int | None:
    """Parse a number of a message id, which has no sign and no leading zeros; return None if it is invalid."""
    number = parse_int(text, 0, _MAX_QUEUE_OFFSET)
    return number if str(number) == text else None
