"""Rows of the Spark sources `consumequeue` and `indexfile`: the entries of a broker's own indexes.

Join them with `messages` and the sources `commitlog` and `journal` by `broker` and `physical_offset`. The sources do
not compare entries with the log; `commitlake verify` does.
"""

from __future__ import annotations

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _column(name: str, data_type: DataType, comment: str) -> StructField:
    return StructField(name, data_type, nullable=True, metadata={"comment": comment})


CORRUPT_ENTRY = _column(
    "_corrupt_record",
    StructType(
        [
            _column("file", StringType(), "path of the file"),
            _column("start", LongType(), "position of the first bad byte in the file"),
            _column("end", LongType(), "position after the last bad byte in the file"),
            _column("reason", StringType(), "see commitlake.connectors.formats.index_entries.entry_damage.Reason"),
            _column("expected", StringType(), "value expected by the format"),
            _column("found", StringType(), "value found in the file"),
            _column("first_bytes", BinaryType(), "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an entry; a row for a bad range has this and the columns known from its place",
)
_BROKER = _column("broker", StringType(), "the store's name, as in messages")
_FILE = _column("file", StringType(), "name of the IndexFile: when it was created, in the broker's time zone")

QUEUE_ENTRIES = StructType(
    [
        _BROKER,
        _column("topic", StringType(), "the queue's topic; a light queue's own name (%LMQ%...)"),
        _column("queue_id", IntegerType(), "queue of the topic"),
        _column("queue_offset", LongType(), "queue offset of the message; for a batch that of its first message"),
        _column("physical_offset", LongType(), "physical offset of the record"),
        _column("size", IntegerType(), "size of the record, bytes; 0 for a message that JMQ's journal has lost"),
        _column(
            "tags_code", LongType(), "hash of the tags; in a queue of a delay level: time of delivery, ms; JMQ: null"
        ),
        _column(
            "store_timestamp", TimestampType(), "store time of the record, UTC; null except in a BatchConsumeQueue"
        ),
        _column("batch_size", IntegerType(), "messages in the record; null except in a BatchConsumeQueue"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each entry of a queue: of a ConsumeQueue, a BatchConsumeQueue or a JMQ queue."""

INDEX_ENTRIES = StructType(
    [
        _BROKER,
        _FILE,
        _column("entry", IntegerType(), "number of the entry in its file, from 1"),
        _column("slot", IntegerType(), "the slot whose chain has the entry"),
        _column("key_hash", IntegerType(), "hash of topic#key; several keys may have the same hash"),
        _column("physical_offset", LongType(), "physical offset of the record"),
        _column(
            "store_timestamp",
            TimestampType(),
            "store time of the record, UTC, to the second; null if the header is damaged",
        ),
        _column("previous_entry", IntegerType(), "number of the next older entry of the chain; 0 at its end"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each entry of an IndexFile."""

INDEX_SLOTS = StructType(
    [
        _BROKER,
        _FILE,
        _column("slot", IntegerType(), "number of the slot, from 0"),
        _column("newest_entry", IntegerType(), "number of the first entry of the slot's chain"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each used slot of an IndexFile."""

INDEX_HEADERS = StructType(
    [
        _BROKER,
        _FILE,
        _column("slots", IntegerType(), "number of slots in the file"),
        _column("entries", IntegerType(), "number of entries that fit in the file; number 0 is never used"),
        _column("begin_timestamp", TimestampType(), "store time of the first entry, UTC"),
        _column("end_timestamp", TimestampType(), "store time of the last entry, UTC"),
        _column("begin_physical_offset", LongType(), "physical offset of the first entry's record"),
        _column("end_physical_offset", LongType(), "physical offset of the last entry's record"),
        _column("used_slots", IntegerType(), "number of used slots; may be too low after a crash"),
        _column("index_count", IntegerType(), "number of entries + 1; may be too low after a crash"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each IndexFile: its header."""
