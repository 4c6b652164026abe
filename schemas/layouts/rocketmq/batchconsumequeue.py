"""BatchConsumeQueue: queue of a topic whose records may contain several messages (5.x, `queue.type=BatchCQ`).

`batchconsumequeue/<topic>/<queueId>/<20 digits>`; one entry of 46 bytes for each record, whose messages have the queue
offsets from `message_base_offset` on. A file's name is the byte position of its first entry. It is unrelated to queue
offsets, so entries are found by binary search. Unused entries are zero. Source:
org.apache.rocketmq.store.queue.BatchConsumeQueue.

Such a record is an inner batch. The broker stores the body of a producer's batch unchanged (see
`schemas.remoting.batch`) and sets the flags INNER_BATCH and NEED_UNWRAP; the client unwraps it. Two properties contain
the offsets of the messages in their queue: INNER_BASE is the first, INNER_NUM their number. Other records of such a
topic contain one message. Source: SendMessageProcessor.sendBatchMessage, BatchConsumeQueue.assignQueueOffset,
CommitLog.setBatchSizeIfNeeded (5.5.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from commitlake.schemas.layouts.base import Field, Layout, ReadableBuffer
from commitlake.schemas.layouts.integer_parsing import parse_int
from commitlake.schemas.layouts.segment_names import MAX_QUEUE_OFFSET

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
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
MAX_INNER_MESSAGES = 32_767
"""Limit of INNER_NUM, which is an int16 in Java and in a queue's entry."""
QUEUE_TYPE = "queue.type"
BATCH_QUEUE_TYPE = "BatchCQ"
SIMPLE_QUEUE_TYPE = "SimpleCQ"


class BatchQueueEntry(NamedTuple):
    """Entry of a BatchConsumeQueue, which points to a record with one or more messages."""

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
        """True if the broker would accept the entry as written."""
        return self.physical_offset >= 0 and self.size > 0 and self.message_base_offset >= 0 and self.batch_size > 0


def parse_entry(buffer: ReadableBuffer, offset: int = 0) -> BatchQueueEntry:
    """Parse the entry at `offset`; the caller ensures that it has 46 bytes."""
    return BatchQueueEntry(*ENTRY.unpack(buffer, offset))


def serialize_entry(entry: BatchQueueEntry) -> bytes:
    """Return the entry's 46 bytes."""
    return ENTRY.pack(*entry)


def has_batch_queues(attributes: Any) -> bool:
    """Return whether a topic's attributes in topics.json select BatchConsumeQueues."""
    return isinstance(attributes, Mapping) and attributes.get(QUEUE_TYPE) == BATCH_QUEUE_TYPE


def base_offset_and_count(properties: Mapping[str, str], queue_offset: int) -> tuple[int, int]:
    """Return the queue offset of a record's first message, and the number of messages in the record.

    Args:
        properties: properties of the record.
        queue_offset: field of the record, which counts if the properties are incomplete.
    """
    base = parse_int(properties.get(INNER_BASE), 0, MAX_QUEUE_OFFSET)
    count = parse_int(properties.get(INNER_NUM), 1, MAX_INNER_MESSAGES)
    return (queue_offset, 1) if base is None or count is None else (base, count)


@dataclass(frozen=True, slots=True)
class BatchEvidence:
    """Counts of records in a log that show whether a topic's queues are BatchConsumeQueues.

    It decides if neither topics.json nor the queue folders contain the type. The flag INNER_BATCH alone proves nothing:
    a client sets it, and no checksum covers it. The offsets that the broker gave to the records do: in a
    BatchConsumeQueue, the offset after a batch of three is larger by three; in a ConsumeQueue, by one.

    Attributes:
        batches: number of records with the flag INNER_BATCH.
        steps: number of records whose offset follows the previous one by the number of messages in that batch, minus
            the number of records whose offset follows it by one.
    """

    batches: int = 0
    steps: int = 0

    def joined(self, other: BatchEvidence) -> BatchEvidence:
        """Return the combined counts of two parts of the log."""
        return BatchEvidence(self.batches + other.batches, self.steps + other.steps)

    def shows_batch_queues(self, record_count: int) -> bool:
        """Return whether the counts show that the topic's queues are BatchConsumeQueues.

        Args:
            record_count: number of all records of the topic, with or without the flag.
        """
        return self.steps > 0 or (self.steps == 0 and 0 < self.batches == record_count)
