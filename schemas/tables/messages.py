"""`messages`: one row per record of a broker's log, of every topic and kind, including the broker's internal ones.

Primary key: (`broker`, `physical_offset`). Partitioned by `store_date`; within a file, rows are sorted by topic, queue
and queue offset, so that queries by topic and by time can skip files by their statistics. The columns are the same for
RocketMQ's CommitLog and JMQ's journal; a column without an equivalent in a format is null.

`MESSAGES` is the schema of the lake's table. `SOURCE` is the schema of the Spark sources `commitlog` and `journal`: the
same without the partition column and `body_ref`, but with the body and `_corrupt_record`. `MESSAGE_KEYS` is the schema
of `message_keys`, by which messages are found.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BINARY, DATE, INT32, INT64, TEXT, TIME, Column, Columns, ListOf, MapOf

_METADATA = [
    Column("broker", TEXT, "the store's name; with physical_offset the primary key"),
    Column("physical_offset", INT64, "position of the record in the log, bytes"),
    Column("size", INT32, "size of the stored record, bytes"),
    Column(
        "topic",
        TEXT,
        "topic in which the record is stored: for a delayed or failed message an internal topic of the broker",
    ),
    Column("queue_id", INT32, "queue of the topic"),
    Column("queue_offset", INT64, "number of the message in its queue, from 0"),
    Column("msg_id", TEXT, "offset message id (store host, port, offset), as brokers print it; JMQ's own id"),
    Column("unique_key", TEXT, "client message id (UNIQ_KEY); does not change through delay, retry and dead letter"),
    Column("keys", ListOf(TEXT), "business keys; null if the producer set none"),
    Column("tags", TEXT, "the message's tag; JMQ: the business tag"),
    Column("kind", TEXT, "normal, delay, retry, dlq, half, op, trace, timer or system"),
    Column(
        "born_timestamp",
        TIME,
        "time at which the producer sent the message, by its clock, UTC, millisecond precision",
    ),
    Column(
        "store_timestamp",
        TIME,
        "time at which the broker stored the message, by its clock, UTC, millisecond precision",
    ),
    Column("born_host", TEXT, "producer's host, ip:port, IPv6 in brackets"),
    Column("store_host", TEXT, "broker's host, ip:port, IPv6 in brackets"),
    Column("sys_flag", INT32, "bits: compression, transaction, hosts"),
    Column("flag", INT32, "flag set by the application"),
    Column("reconsume_times", INT32, "failed consumptions so far"),
    Column("priority", INT32, "priority; null if the producer set none"),
    Column("prepared_transaction_offset", INT64, "in a committed message: physical offset of its half message"),
    Column("body_size", INT32, "size of the stored body, bytes"),
    Column("body_crc", INT32, "CRC-32 of the stored body, without the top bit"),
    Column("body_codec", TEXT, "compression: none, zlib, lz4, zstd; unknown if the flag bits name no codec"),
    Column(
        "properties",
        MapOf(TEXT, TEXT),
        "all properties; of a repeated key the last value",
    ),
    Column(
        "format",
        TEXT,
        "format of the log: rocketmq or jmq; null in rows of earlier versions, whose msg_id shows it",
    ),
    Column(
        "origin_topic",
        TEXT,
        "topic that the message was sent to, also if it is delayed, half, retried or dead; the stored topic "
        "if the record names no other; null in rows of earlier versions",
    ),
    Column(
        "producer_group",
        TEXT,
        "the producer's group, which only messages of transactions contain; JMQ: its application; null if there is "
        "none, and in rows of earlier versions, which have it in properties",
    ),
]
BODY_PLACE = Columns(
    [
        Column("pack", TEXT, "name of the pack, relative to the lake's folder of bodies"),
        Column("frame_offset", INT64, "position of the frame in the pack"),
        Column("frame_length", INT32, "stored size of the frame, bytes"),
        Column("offset", INT32, "position of the body in the frame's content"),
        Column("length", INT32, "size of the body, bytes"),
    ]
)
BODY_REF = Column(
    "body_ref", BODY_PLACE, "location of the body as the broker stored it; null if the lake does not have it"
)
STORE_DATE = Column("store_date", DATE, "UTC date of store_timestamp; the partition")
BODY = Column("body", BINARY, "the body, as stored, or decompressed by option")
CORRUPT_RECORD = Column(
    "_corrupt_record",
    Columns(
        [
            Column("segment", TEXT, "file, as it was read"),
            Column("start", INT64, "physical offset of the first bad byte"),
            Column("end", INT64, "physical offset after the last bad byte"),
            Column("reason", TEXT, "see commitlake.schemas.layouts.rocketmq.scan.Fault"),
            Column("expected", TEXT, "value expected by the format"),
            Column("found", TEXT, "value found"),
            Column("first_bytes", BINARY, "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an intact record; a row for a bad range has only this, broker and physical_offset",
)

MESSAGES = Columns([*_METADATA, BODY_REF, STORE_DATE])
SOURCE = Columns([*_METADATA, BODY, CORRUPT_RECORD])
PARTITION_COLUMNS = (STORE_DATE.name,)


MESSAGE_KEYS = Columns(
    [
        Column("key_hash", INT64, "CRC-32 of the key in UTF-8; files are sorted by it"),
        Column("key", TEXT, "a business key, or the client's message id"),
        Column("kind", TEXT, "key (one of keys) or unique_key, as in messages"),
        Column("broker", TEXT, "as in messages"),
        Column("physical_offset", INT64, "as in messages"),
        Column("topic", TEXT, "as in messages"),
        Column("store_timestamp", TIME, "as in messages; its date is the partition"),
    ]
)
"""One row per key of a message, to find messages by business key or by a client's message id.

Key: (`key`, `kind`, `broker`, `physical_offset`). A file's rows are sorted by `key_hash`, the CRC-32 of the key as
UTF-8 (`crc32(key)` in Spark), so that a look-up by hash and key reads one page per file. The table is derived from
`messages` by its Delta version, and may lack the newest one.
"""
