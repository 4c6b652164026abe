"""BatchConsumeQueue: queue of a topic whose records may contain several messages (5.x, `queue.type=BatchCQ`).

`batchconsumequeue/<topic>/<queueId>/<20 digits>`; one entry of 46 bytes for each record, whose messages have the queue
offsets from `message_base_offset` on. A file's name is the byte position of its first entry. It is unrelated to queue
offsets, so entries are found by binary search. Unused entries are zero. Source:
org.apache.rocketmq.store.queue.BatchConsumeQueue.
"""

from __future__ import annotations

from typing import NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer

DEFAULT_FILE_ENTRIES = 300_000
NO_COMPACTED_OFFSET = -1

ENTRY = Layout(
    Field("physical_offset", "q", "physical offset of the record, bytes"),
    Field("size", "i", "size of the record, bytes"),
    Field("tags_code", "q", "hash of TAGS"),
    Field("store_timestamp", "q", "store time of the record, ms"),
    Field("message_base_offset", "q", "queue offset of the record's first message"),
    Field("batch_size", "h", "number of messages in the record"),
    Field("compacted_offset", "i", "-1 if it is not used"),
    Field("reserved", "i", "0"),
)
assert ENTRY.size == 46


class BatchQueueEntry(NamedTuple):
    """Entry of a record in a queue."""

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
        """True if the broker takes it for a written entry."""
        return self.physical_offset >= 0 and self.size > 0 and self.message_base_offset >= 0 and self.batch_size > 0


def parse_entry(buffer: ReadableBuffer, offset: int = 0) -> BatchQueueEntry:
    """Parse the entry at `offset`; the caller ensures that it has 46 bytes."""
    return BatchQueueEntry(*ENTRY.unpack(buffer, offset))


def serialize_entry(entry: BatchQueueEntry) -> bytes:
    """Return the entry's 46 bytes."""
    return ENTRY.pack(*entry)
