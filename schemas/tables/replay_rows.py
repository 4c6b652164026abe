"""`replay_rows`: messages that a replay changes or copies, one row per message, in the form in which they are sent.

A replay with `--transform` or `--mask`, or one of a store or live topics, writes all rows before it sends the first
message, so that it sends the same messages if it is resumed after a crash. While a function changes the messages, the
table also has their original rows. `maintain` deletes the rows of a replay 30 days after its end, see
`pipelines.replay.expiry`.

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
    "broker", "physical_offset", "msg_id", "topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp",
    "size", "sys_flag", "origin_topic",
)  # fmt: skip
"""The columns that identify a message: no function may change them."""

_MESSAGE = [
    column("broker", StringType(), "the store's name; with physical_offset the message's key"),
    column("physical_offset", LongType(), "position of the record in the log, bytes"),
    column("msg_id", StringType(), "offset message id"),
    column("topic", StringType(), "topic in which it was stored"),
    column("queue_id", IntegerType(), "queue in which it was stored"),
    column("queue_offset", LongType(), "its queue offset there"),
    column(
        "store_timestamp",
        TimestampType(),
        "time at which the broker stored the message, by its clock, UTC, millisecond precision",
    ),
    column("born_timestamp", TimestampType(), "time at which the producer made the message, by its clock, UTC"),
    column("size", IntegerType(), "size of the stored record, bytes"),
    column("sys_flag", IntegerType(), "flag bits: compression of the body as it is sent"),
    column("origin_topic", StringType(), "original topic of a retry or a dead letter"),
    column("flag", IntegerType(), "flag set by the application"),
    column("keys", ArrayType(StringType(), containsNull=False), "business keys; null if there are none"),
    column("tags", StringType(), "the message's tag"),
    column(
        "properties",
        MapType(StringType(), StringType(), valueContainsNull=False),
        "properties; in a changed message without keys and tags, which have columns of their own; otherwise as stored",
    ),
    column(
        "body",
        BinaryType(),
        "the body: before a change, decompressed, as the producer sent it; after the change, as it is sent",
    ),
]

TRANSFORMED = StructType(_MESSAGE)
"""Input and output columns of a function that changes messages."""

REPLAY_ROWS = StructType(
    [
        column("replay_id", StringType(), "the replay"),
        column(
            "is_changed", BooleanType(), "true for the message as it is sent, false for the message before the change"
        ),
        column("error", StringType(), "reason why the message cannot be sent; null if it can"),
        *_MESSAGE,
    ]
)
