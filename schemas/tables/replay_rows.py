"""`replay_rows`: messages that a replay changes on the way or copies, one row per message, as they are sent.

A replay with `--transform` or `--mask`, or of a store or live topics, writes all of them before it sends the first one,
so that a replay that goes on after a crash sends the same. While a function changes them, the table also has the rows
as they were.

Key: (`replay_id`, `is_changed`, `broker`, `physical_offset`).
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from commitlake.schemas.tables.columns import column

IDENTITY = (
    "broker", "physical_offset", "msg_id", "topic", "queue_id", "queue_offset", "store_timestamp", "size", "sys_flag",
    "origin_topic",
)  # fmt: skip
"""What a message is known by: no function may change these columns."""

_MESSAGE = [
    column("broker", StringType(), "the store's name; with physical_offset the message's key"),
    column("physical_offset", LongType(), "bytes from the log's logical start"),
    column("msg_id", StringType(), "offset message id"),
    column("topic", StringType(), "where it was stored"),
    column("queue_id", IntegerType(), "likewise"),
    column("queue_offset", LongType(), "likewise"),
    column("store_timestamp", TimestampType(), "broker's clock, UTC, millisecond precision"),
    column("size", IntegerType(), "bytes of the stored record"),
    column("sys_flag", IntegerType(), "bits: of the body as it is sent, whether and how it is compressed"),
    column("origin_topic", StringType(), "of a retry or a dead letter, the topic that it was sent to at first"),
    column("flag", IntegerType(), "the application's own"),
    column("keys", ArrayType(StringType(), containsNull=False), "business keys; null where there are none"),
    column("tags", StringType(), "the message's tag"),
    column(
        "properties",
        MapType(StringType(), StringType(), valueContainsNull=False),
        "of a changed message, without keys and tags, which have columns of their own; else as stored",
    ),
    column("body", BinaryType(), "as its producer gave it to a function; once changed, as it is sent"),
]

TRANSFORMED = StructType(_MESSAGE)
"""What a function that changes messages gets and gives."""

REPLAY_ROWS = StructType(
    [
        column("replay_id", StringType(), "the replay"),
        column("is_changed", BooleanType(), "whether the row is what is sent, or what the message was before"),
        column("error", StringType(), "why the message cannot be sent; null where it can"),
        *_MESSAGE,
    ]
)
