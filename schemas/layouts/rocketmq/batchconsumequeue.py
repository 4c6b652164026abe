"""BatchConsumeQueue: the queue of a topic whose records may hold several messages each (5.x, `queue.type=BatchCQ`).

`batchconsumequeue/<topic>/<queueId>/<20 digits>`; one entry of 46 bytes for each record, whose messages have the
queue offsets from `message_base_offset` on. A file's name is the byte position of its first entry, and has nothing to
do with queue offsets: whoever looks one up halves the entries by their base. Unused entries are zero. Source:
org.apache.rocketmq.store.queue.BatchConsumeQueue.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer

DEFAULT_FILE_ENTRIES = 300_000
NO_COMPACTED_OFFSET = -1

ENTRY = Layout(
    Field("physical_offset", "q", "of the record in the CommitLog, bytes"),
    Field("size", "i", "of the record, bytes"),
    Field("tags_code", "q", "hash of TAGS"),
    Field("store_timestamp", "q", "of the record, ms"),
    Field("message_base_offset", "q", "queue offset of the record's first message"),
    Field("batch_size", "h", "messages in the record"),
    Field("compacted_offset", "i", "-1 where it is not used"),
    Field("reserved", "i", "0"),
)
assert ENTRY.size == 46


class Entry(NamedTuple):
    """One record of a queue."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    message_base_offset: int
    batch_size: int
    compacted_offset: int = NO_COMPACTED_OFFSET
    reserved: int = 0

    @property
    def is_valid(self) -> bool:
        """Whether the broker takes it for a written entry."""
        return self.physical_offset >= 0 and self.size > 0 and self.message_base_offset >= 0 and self.batch_size > 0


def parse_entry(buffer: ReadableBuffer, offset: int = 0) -> Entry:
    """The entry at `offset`; the caller has checked that 46 bytes are there."""
    return Entry(*ENTRY.unpack(buffer, offset))


def serialize_entry(entry: Entry) -> bytes:
    """The entry's 46 bytes."""
    return ENTRY.pack(*entry)
