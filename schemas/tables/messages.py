"""`messages`: one row per record of a broker's log, of every topic and kind, including the broker's internal ones.

Primary key: (`broker`, `physical_offset`). Partitioned by `store_date`; within a file, rows are sorted by topic, queue
and queue offset, so that queries by topic and by time can skip files by their statistics. The columns are the same for
RocketMQ's CommitLog and JMQ's journal; a column without an equivalent in a format is null.

`MESSAGES` is the schema of the lake's table. `SOURCE` is the schema of the Spark sources `commitlog` and `journal`: the
same without the partition column and `body_ref`, but with the body and `_corrupt_record`.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from commitlake.schemas.tables.columns import column

_METADATA = [
    column("broker", StringType(), "the store's name; with physical_offset the primary key"),
    column("physical_offset", LongType(), "position of the record in the log, bytes"),
    column("size", IntegerType(), "size of the stored record, bytes"),
    column(
        "topic",
        StringType(),
        "topic in which the record is stored: for a delayed or failed message an internal topic of the broker",
    ),
    column("queue_id", IntegerType(), "queue of the topic"),
    column("queue_offset", LongType(), "number of the message in its queue, from 0"),
    column("msg_id", StringType(), "offset message id (store host, port, offset), as brokers print it; JMQ's own id"),
    column(
        "unique_key", StringType(), "client message id (UNIQ_KEY); does not change through delay, retry and dead letter"
    ),
    column("keys", ArrayType(StringType(), containsNull=False), "business keys; null if the producer set none"),
    column("tags", StringType(), "the message's tag; JMQ: the business tag"),
    column("kind", StringType(), "normal, delay, retry, dlq, half, op, trace, timer or system"),
    column(
        "born_timestamp",
        TimestampType(),
        "time at which the producer sent the message, by its clock, UTC, millisecond precision",
    ),
    column(
        "store_timestamp",
        TimestampType(),
        "time at which the broker stored the message, by its clock, UTC, millisecond precision",
    ),
    column("born_host", StringType(), "producer's host, ip:port, IPv6 in brackets"),
    column("store_host", StringType(), "broker's host, ip:port, IPv6 in brackets"),
    column("sys_flag", IntegerType(), "bits: compression, transaction, hosts"),
    column("flag", IntegerType(), "flag set by the application"),
    column("reconsume_times", IntegerType(), "failed consumptions so far"),
    column("priority", IntegerType(), "priority; null if the producer set none"),
    column("prepared_transaction_offset", LongType(), "in a committed message: physical offset of its half message"),
    column("body_size", IntegerType(), "size of the stored body, bytes"),
    column("body_crc", IntegerType(), "CRC-32 of the stored body, without the top bit"),
    column("body_codec", StringType(), "compression: none, zlib, lz4, zstd; unknown if the flag bits name no codec"),
    column(
        "properties",
        MapType(StringType(), StringType(), valueContainsNull=False),
        "all properties; of a repeated key the last value",
    ),
    column(
        "format",
        StringType(),
        "format of the log: rocketmq or jmq; null in rows of earlier versions, whose msg_id shows it",
    ),
    column(
        "origin_topic",
        StringType(),
        "topic that the message was sent to, also if it is delayed, half, retried or dead; the stored topic "
        "if the record names no other; null in rows of earlier versions",
    ),
    column(
        "producer_group",
        StringType(),
        "the producer's group, which only messages of transactions contain; JMQ: its application; null if there is "
        "none, and in rows of earlier versions, which have it in properties",
    ),
]
BODY_PLACE = StructType(
    [
        column("pack", StringType(), "name of the pack, relative to the lake's folder of bodies"),
        column("frame_offset", LongType(), "position of the frame in the pack"),
        column("frame_length", IntegerType(), "stored size of the frame, bytes"),
        column("offset", IntegerType(), "position of the body in the frame's content"),
        column("length", IntegerType(), "size of the body, bytes"),
    ]
)
BODY_REF = column(
    "body_ref", BODY_PLACE, "location of the body as the broker stored it; null if the lake does not have it"
)
STORE_DATE = column("store_date", DateType(), "UTC date of store_timestamp; the partition")
BODY = column("body", BinaryType(), "the body, as stored, or decompressed by option")
CORRUPT_RECORD = column(
    "_corrupt_record",
    StructType(
        [
            column("segment", StringType(), "file, as it was read"),
            column("start", LongType(), "physical offset of the first bad byte"),
            column("end", LongType(), "physical offset after the last bad byte"),
            column("reason", StringType(), "see commitlake.schemas.layouts.rocketmq.scan.Fault"),
            column("expected", StringType(), "value expected by the format"),
            column("found", StringType(), "value found"),
            column("first_bytes", BinaryType(), "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an intact record; a row for a bad range has only this, broker and physical_offset",
)

MESSAGES = StructType([*_METADATA, BODY_REF, STORE_DATE])
SOURCE = StructType([*_METADATA, BODY, CORRUPT_RECORD])
PARTITION_COLUMNS = (STORE_DATE.name,)
