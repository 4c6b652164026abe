"""`messages`: one row per record of a broker's log, of every topic and kind, the broker's internal ones included.

Primary key: (`broker`, `physical_offset`). Partitioned by `store_date`; within a file, rows are sorted by topic, queue
and queue offset, so that a file's statistics answer queries by topic and by time. Both sources, RocketMQ's CommitLog
and JMQ's journal, give these columns; where one has no such thing, the column is null.

`MESSAGES` is what the lake stores. `SOURCE` is what the Spark sources `commitlog` and `journal` can give: the same
without the partition column and `body_ref`, with the body and with `_corrupt_record`.
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
    column("physical_offset", LongType(), "bytes from the log's logical start"),
    column("size", IntegerType(), "bytes of the stored record"),
    column("topic", StringType(), "where it is stored: a delayed or failed message lies in a topic of the broker's"),
    column("queue_id", IntegerType(), "queue of the topic"),
    column("queue_offset", LongType(), "number of the message in its queue, from 0"),
    column("msg_id", StringType(), "offset message id (store host, port, offset), as brokers print it; JMQ's own id"),
    column(
        "unique_key", StringType(), "client message id (UNIQ_KEY); stays the same through delay, retry and dead letter"
    ),
    column("keys", ArrayType(StringType(), containsNull=False), "business keys; null where the producer set none"),
    column("tags", StringType(), "the message's tag; JMQ: the business tag"),
    column("kind", StringType(), "normal, delay, retry, dlq, half, op, trace, timer or system"),
    column("born_timestamp", TimestampType(), "producer's clock, UTC, millisecond precision"),
    column("store_timestamp", TimestampType(), "broker's clock, UTC, millisecond precision"),
    column("born_host", StringType(), "producer, ip:port, IPv6 in brackets"),
    column("store_host", StringType(), "broker, ip:port, IPv6 in brackets"),
    column("sys_flag", IntegerType(), "bits: compression, transaction, hosts"),
    column("flag", IntegerType(), "the application's own"),
    column("reconsume_times", IntegerType(), "failed consumptions so far"),
    column("priority", IntegerType(), "null where the producer set none"),
    column("prepared_transaction_offset", LongType(), "of a committed message: physical offset of its half message"),
    column("body_size", IntegerType(), "bytes of the stored body"),
    column("body_crc", IntegerType(), "CRC-32 of the stored body, top bit cleared"),
    column("body_codec", StringType(), "none, zlib, lz4, zstd; unknown where the flag bits name no codec"),
    column(
        "properties",
        MapType(StringType(), StringType(), valueContainsNull=False),
        "all of them; of a repeated key the last",
    ),
    column(
        "format", StringType(), "of the log: rocketmq or jmq; null in rows of earlier versions, whose msg_id tells it"
    ),
    column(
        "origin_topic",
        StringType(),
        "the topic that the message was sent to, also where it is delayed, half, retried or dead; the stored topic "
        "where the record names no other; null in rows of earlier versions",
    ),
    column(
        "producer_group",
        StringType(),
        "the producer's group, which only messages of transactions name; JMQ: its application; null where there is "
        "none, and in rows of earlier versions, which have it in properties",
    ),
]
BODY_PLACE = StructType(
    [
        column("pack", StringType(), "name of the pack, relative to the lake's folder of bodies"),
        column("frame_offset", LongType(), "where the frame begins in the pack"),
        column("frame_length", IntegerType(), "bytes of the frame as stored"),
        column("offset", IntegerType(), "where the body begins in the frame's content"),
        column("length", IntegerType(), "bytes of the body"),
    ]
)
BODY_REF = column("body_ref", BODY_PLACE, "where the body lies, as the broker stored it; null where the lake has none")
STORE_DATE = column("store_date", DateType(), "UTC date of store_timestamp; the partition")
BODY = column("body", BinaryType(), "as stored, or decompressed by option")
CORRUPT_RECORD = column(
    "_corrupt_record",
    StructType(
        [
            column("segment", StringType(), "file, as it was read"),
            column("start", LongType(), "physical offset of the first bad byte"),
            column("end", LongType(), "physical offset behind the last bad byte"),
            column("reason", StringType(), "see commitlake.schemas.layouts.rocketmq.scan.Fault"),
            column("expected", StringType(), "what the format asks for"),
            column("found", StringType(), "what stands there"),
            column("first_bytes", BinaryType(), "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an intact record; a row for a bad range has this, broker and physical_offset only",
)

MESSAGES = StructType([*_METADATA, BODY_REF, STORE_DATE])
SOURCE = StructType([*_METADATA, BODY, CORRUPT_RECORD])
PARTITION_COLUMNS = (STORE_DATE.name,)
