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
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _column(name: str, data_type: DataType, comment: str) -> StructField:
    return StructField(name, data_type, nullable=True, metadata={"comment": comment})


_METADATA = [
    _column("broker", StringType(), "the store's name; with physical_offset the primary key"),
    _column("physical_offset", LongType(), "bytes from the log's logical start"),
    _column("size", IntegerType(), "bytes of the stored record"),
    _column("topic", StringType(), "where it is stored: a delayed or failed message lies in a topic of the broker's"),
    _column("queue_id", IntegerType(), "queue of the topic"),
    _column("queue_offset", LongType(), "number of the message in its queue, from 0"),
    _column("msg_id", StringType(), "offset message id (store host, port, offset), as brokers print it; JMQ's own id"),
    _column(
        "unique_key", StringType(), "client message id (UNIQ_KEY); stays the same through delay, retry and dead letter"
    ),
    _column("keys", ArrayType(StringType(), containsNull=False), "business keys; null where the producer set none"),
    _column("tags", StringType(), "the message's tag; JMQ: the business tag"),
    _column("kind", StringType(), "normal, delay, retry, dlq, half, op, trace, timer or system"),
    _column("born_timestamp", TimestampType(), "producer's clock, UTC, millisecond precision"),
    _column("store_timestamp", TimestampType(), "broker's clock, UTC, millisecond precision"),
    _column("born_host", StringType(), "producer, ip:port, IPv6 in brackets"),
    _column("store_host", StringType(), "broker, ip:port, IPv6 in brackets"),
    _column("sys_flag", IntegerType(), "bits: compression, transaction, hosts"),
    _column("flag", IntegerType(), "the application's own"),
    _column("reconsume_times", IntegerType(), "failed consumptions so far"),
    _column("priority", IntegerType(), "null where the producer set none"),
    _column("prepared_transaction_offset", LongType(), "of a committed message: physical offset of its half message"),
    _column("body_size", IntegerType(), "bytes of the stored body"),
    _column("body_crc", IntegerType(), "CRC-32 of the stored body, top bit cleared"),
    _column("body_codec", StringType(), "none, zlib, lz4, zstd; unknown where the flag bits name no codec"),
    _column(
        "properties",
        MapType(StringType(), StringType(), valueContainsNull=False),
        "all of them; of a repeated key the last",
    ),
]
BODY_PLACE = StructType(
    [
        _column("pack", StringType(), "name of the pack, relative to the lake's folder of bodies"),
        _column("frame_offset", LongType(), "where the frame begins in the pack"),
        _column("frame_length", IntegerType(), "bytes of the frame as stored"),
        _column("offset", IntegerType(), "where the body begins in the frame's content"),
        _column("length", IntegerType(), "bytes of the body"),
    ]
)
BODY_REF = _column("body_ref", BODY_PLACE, "where the body lies, as the broker stored it; null where the lake has none")
STORE_DATE = _column("store_date", DateType(), "UTC date of store_timestamp; the partition")
BODY = _column("body", BinaryType(), "as stored, or decompressed by option")
CORRUPT_RECORD = _column(
    "_corrupt_record",
    StructType(
        [
            _column("segment", StringType(), "file, as it was read"),
            _column("start", LongType(), "physical offset of the first bad byte"),
            _column("end", LongType(), "physical offset behind the last bad byte"),
            _column("reason", StringType(), "see commitlake.schemas.layouts.rocketmq.scan.Fault"),
            _column("expected", StringType(), "what the format asks for"),
            _column("found", StringType(), "what stands there"),
            _column("first_bytes", BinaryType(), "up to 256 bytes from the start of the range"),
        ]
    ),
    "null for an intact record; a row for a bad range has this, broker and physical_offset only",
)

MESSAGES = StructType([*_METADATA, BODY_REF, STORE_DATE])
SOURCE = StructType([*_METADATA, BODY, CORRUPT_RECORD])
PARTITION_COLUMNS = (STORE_DATE.name,)
SORT_COLUMNS = ("topic", "queue_id", "queue_offset")
