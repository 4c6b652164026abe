"""ConsumeQueue: 20-byte entries that point to the messages of a queue in the CommitLog.

`consumequeue/<topic>/<queueId>/<20 digits>`; entry i of a queue is at byte i * 20 of the queue, and a file's name is
the byte position of its first entry. Files have a fixed size (6,000,000 bytes by default); unused entries are zero. The
first invalid entry ends the queue. Source: org.apache.rocketmq.store.ConsumeQueue.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.rocketmq.key_hashes import java_hash

DEFAULT_FILE_SIZE = 6_000_000

ENTRY = Layout(
    Field("physical_offset", "q", "physical offset of the record, bytes"),
    Field("size", "i", "size of the record, bytes"),
    Field("tags_code", "q", "hash of TAGS; in the schedule topic: delivery time, ms"),
)
assert ENTRY.size == 20


class ConsumeQueueEntry(NamedTuple):
    """Entry of a ConsumeQueue, which points to a message in the CommitLog."""

    physical_offset: int
    size: int
    tags_code: int

    @property
    def is_valid(self) -> bool:
        """True if the broker would accept the entry as written."""
        return self.physical_offset >= 0 and self.size > 0


PRE_BLANK = ConsumeQueueEntry(0, 0x7FFFFFFF, 0)
"""Filler of a queue that was first created at an offset above 0; it stands for no message."""


def parse_entry(buffer: ReadableBuffer, offset: int = 0) -> ConsumeQueueEntry:
    """Parse the entry at `offset`; the caller ensures that it has 20 bytes."""
    return ConsumeQueueEntry(*ENTRY.unpack(buffer, offset))


def serialize_entry(entry: ConsumeQueueEntry) -> bytes:
    """Return the entry's 20 bytes."""
    return ENTRY.pack(*entry)


def tags_code(tags: str | None) -> int:
    """Return the tags code of a queue entry: Java's hash of the whole TAGS value, or 0 if the record has no tags."""
    return java_hash(tags) if tags else 0
