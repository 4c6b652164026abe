"""`replay_rows`: messages that a replay changes or copies, one row per message, in the form in which they are sent.

A replay with `--transform` or `--mask`, or one of a store or live topics, writes all rows before it sends the first
message, so that it sends the same messages if it is resumed after a crash. While a function changes the messages, the
table also has their original rows. `maintain` deletes the rows of a replay 30 days after its end, see
`pipelines.replay.replay_rows`.

Key: (`replay_id`, `is_changed`, `broker`, `physical_offset`).
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BINARY, BOOLEAN, INT32, INT64, TEXT, TIME, Column, Columns, ListOf, MapOf

IDENTITY = (
    "broker", "physical_offset", "msg_id", "topic", "queue_id", "queue_offset", "store_timestamp", "born_timestamp",
    "size", "sys_flag", "origin_topic",
)  # fmt: skip
"""The columns that identify a message: no function may change them."""

_MESSAGE = [
    Column("broker", TEXT, "the store's name; with physical_offset the message's key"),
    Column("physical_offset", INT64, "position of the record in the log, bytes"),
    Column("msg_id", TEXT, "offset message id"),
    Column("topic", TEXT, "topic in which it was stored"),
    Column("queue_id", INT32, "queue in which it was stored"),
    Column("queue_offset", INT64, "its queue offset there"),
    Column(
        "store_timestamp",
        TIME,
        "time at which the broker stored the message, by its clock, UTC, millisecond precision",
    ),
    Column("born_timestamp", TIME, "time at which the producer made the message, by its clock, UTC"),
    Column("size", INT32, "size of the stored record, bytes"),
    Column("sys_flag", INT32, "flag bits: compression of the body as it is sent"),
    Column("origin_topic", TEXT, "original topic of a retry or a dead letter"),
    Column("flag", INT32, "flag set by the application"),
    Column("keys", ListOf(TEXT), "business keys; null if there are none"),
    Column("tags", TEXT, "the message's tag"),
    Column(
        "properties",
        MapOf(TEXT, TEXT),
        "properties; in a changed message without keys and tags, which have columns of their own; otherwise as stored",
    ),
    Column(
        "body",
        BINARY,
        "the body: before a change, decompressed, as the producer sent it; after the change, as it is sent",
    ),
]

TRANSFORMED = Columns(_MESSAGE)
"""Input and output columns of a function that changes messages."""

REPLAY_ROWS = Columns(
    [
        Column("replay_id", TEXT, "the replay"),
        Column("is_changed", BOOLEAN, "true for the message as it is sent, false for the message before the change"),
        Column("error", TEXT, "reason why the message cannot be sent; null if it can"),
        *_MESSAGE,
    ]
)
