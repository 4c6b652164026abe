"""The rows of the Spark sources `consumequeue` and `indexfile`: the entries of a broker's own indexes.

They join `messages` and the sources `commitlog` and `journal` by `broker` and `physical_offset`. Nothing in them is
compared with the log: that is what `commitlake verify` does.
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
            _column("start", LongType(), "the first bad byte of the file"),
            _column("end", LongType(), "the byte after the last bad one"),
            _column("reason", StringType(), "see commitlake.connectors.formats.index_entries.entry_damage.Reason"),
            _column("expected", StringType(), "what the format asks for"),
            _column("found", StringType(), "what the file has"),
            _column("first_bytes", BinaryType(), "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an entry; a row for a bad range has this and the columns that its place tells",
)
_BROKER = _column("broker", StringType(), "the store's name, as in messages")
_FILE = _column("file", StringType(), "name of the IndexFile: when it was created, in the broker's time zone")

QUEUE_ENTRIES = StructType(
    [
        _BROKER,
        _column("topic", StringType(), "the queue's topic; a light queue's own name (%LMQ%...)"),
        _column("queue_id", IntegerType(), "queue of the topic"),
        _column("queue_offset", LongType(), "number of the message in its queue; of a batch its first message's"),
        _column("physical_offset", LongType(), "where the record begins in the log, bytes"),
        _column("size", IntegerType(), "bytes of the record; 0 for a message that JMQ's journal has lost"),
        _column(
            "tags_code", LongType(), "hash of the tags; a level's queue of delays: time of delivery, ms; JMQ: null"
        ),
        _column("store_timestamp", TimestampType(), "of the record, UTC; null but in a BatchConsumeQueue"),
        _column("batch_size", IntegerType(), "messages in the record; null but in a BatchConsumeQueue"),
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
        _column("key_hash", IntegerType(), "hash of topic#key; many keys have the same"),
        _column("physical_offset", LongType(), "where the record begins in the log, bytes"),
        _column(
            "store_timestamp", TimestampType(), "of the record, UTC, to the second; null where the header is damaged"
        ),
        _column("previous_entry", IntegerType(), "the next older entry of the chain; 0 at its end"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each entry of an IndexFile."""

INDEX_SLOTS = StructType(
    [
        _BROKER,
        _FILE,
        _column("slot", IntegerType(), "number of the slot, from 0"),
        _column("newest_entry", IntegerType(), "the entry that the slot's chain begins with"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each slot of an IndexFile that is in use."""

INDEX_HEADERS = StructType(
    [
        _BROKER,
        _FILE,
        _column("slots", IntegerType(), "slots that the file has room for"),
        _column("entries", IntegerType(), "entries that the file has room for; the one with number 0 is never used"),
        _column("begin_timestamp", TimestampType(), "store time of the first entry, UTC"),
        _column("end_timestamp", TimestampType(), "store time of the last entry, UTC"),
        _column("begin_physical_offset", LongType(), "of the first entry's record, bytes"),
        _column("end_physical_offset", LongType(), "of the last entry's record, bytes"),
        _column("used_slots", IntegerType(), "slots in use; after a crash fewer than there are"),
        _column("index_count", IntegerType(), "entries + 1; after a crash fewer than there are"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each IndexFile: its header."""
