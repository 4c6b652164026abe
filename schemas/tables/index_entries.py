"""Rows of the Spark sources `consumequeue` and `indexfile`: the entries of a broker's own indexes.

Join them with `messages` and the sources `commitlog` and `journal` by `broker` and `physical_offset`. The sources do
not compare entries with the log; `commitlake verify` does.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BINARY, INT32, INT64, TEXT, TIME, Column, Columns

CORRUPT_ENTRY = Column(
    "_corrupt_record",
    Columns(
        [
            Column("file", TEXT, "path of the file"),
            Column("start", INT64, "position of the first bad byte in the file"),
            Column("end", INT64, "position after the last bad byte in the file"),
            Column("reason", TEXT, "see commitlake.connectors.formats.index_entries.entry_damage.Reason"),
            Column("expected", TEXT, "value expected by the format"),
            Column("found", TEXT, "value found in the file"),
            Column("first_bytes", BINARY, "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an entry; a row for a bad range has this and the columns known from its place",
)
_BROKER = Column("broker", TEXT, "the store's name, as in messages")
_FILE = Column("file", TEXT, "name of the IndexFile: when it was created, in the broker's time zone")

QUEUE_ENTRIES = Columns(
    [
        _BROKER,
        Column("topic", TEXT, "the queue's topic; a light queue's own name (%LMQ%...)"),
        Column("queue_id", INT32, "queue of the topic"),
        Column("queue_offset", INT64, "queue offset of the message; for a batch that of its first message"),
        Column("physical_offset", INT64, "physical offset of the record"),
        Column("size", INT32, "size of the record, bytes; 0 for a message that JMQ's journal has lost"),
        Column("tags_code", INT64, "hash of the tags; in a queue of a delay level: time of delivery, ms; JMQ: null"),
        Column("store_timestamp", TIME, "store time of the record, UTC; null except in a BatchConsumeQueue"),
        Column("batch_size", INT32, "messages in the record; null except in a BatchConsumeQueue"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each entry of a queue: of a ConsumeQueue, a BatchConsumeQueue or a JMQ queue."""

INDEX_ENTRIES = Columns(
    [
        _BROKER,
        _FILE,
        Column("entry", INT32, "number of the entry in its file, from 1"),
        Column("slot", INT32, "the slot whose chain has the entry"),
        Column("key_hash", INT32, "hash of topic#key; several keys may have the same hash"),
        Column("physical_offset", INT64, "physical offset of the record"),
        Column(
            "store_timestamp",
            TIME,
            "store time of the record, UTC, to the second; null if the header is damaged",
        ),
        Column("previous_entry", INT32, "number of the next older entry of the chain; 0 at its end"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each entry of an IndexFile."""

INDEX_SLOTS = Columns(
    [
        _BROKER,
        _FILE,
        Column("slot", INT32, "number of the slot, from 0"),
        Column("newest_entry", INT32, "number of the first entry of the slot's chain"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each used slot of an IndexFile."""

INDEX_HEADERS = Columns(
    [
        _BROKER,
        _FILE,
        Column("slots", INT32, "number of slots in the file"),
        Column("entries", INT32, "number of entries that fit in the file; number 0 is never used"),
        Column("begin_timestamp", TIME, "store time of the first entry, UTC"),
        Column("end_timestamp", TIME, "store time of the last entry, UTC"),
        Column("begin_physical_offset", INT64, "physical offset of the first entry's record"),
        Column("end_physical_offset", INT64, "physical offset of the last entry's record"),
        Column("used_slots", INT32, "number of used slots; may be too low after a crash"),
        Column("index_count", INT32, "number of entries + 1; may be too low after a crash"),
        CORRUPT_ENTRY,
    ]
)
"""One row for each IndexFile: its header."""
