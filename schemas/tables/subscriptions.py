"""`subscriptions`: the subscriptions and clients of each group, one row per change.

Members and tags are only known from a live broker. SQL92 expressions can also be read from a store's
`config/consumerFilter.json`; in the rows of that source, the members are unknown.

A snapshot also adds a row without a group for each `source` that it read, see `consumer_offsets`.

Key: (`broker`, `source`, `group`, `topic`, `as_of`). Append-only.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns, ListOf

MEMBER = Columns(
    [
        Column("client_id", TEXT, "the client's id"),
        Column("address", TEXT, "ip:port as the broker sees it"),
        Column("language", TEXT, "language of the client: JAVA, CPP, GO, …"),
        Column("version", INT32, "ordinal of the client's RocketMQ version"),
        Column("version_name", TEXT, "name of the client's version, as V5_5_0"),
    ]
)

SUBSCRIPTIONS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("as_of", TIME, "time at which the broker answered, or the file was written"),
        Column("source", TEXT, "source: broker or file"),
        Column("group", TEXT, "the consumer group; null in the row of a whole snapshot"),
        Column("topic", TEXT, "topic that the group subscribes to"),
        Column("expression_type", TEXT, "TAG or SQL92; null once the group has no subscription any more"),
        Column(
            "expression",
            TEXT,
            "*, tags separated by ||, or SQL92; null once the group has no subscription any more",
        ),
        Column("subscribed_at", INT64, "version of the subscription: ms since 1970"),
        Column("consume_type", TEXT, "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)"),
        Column("message_model", TEXT, "CLUSTERING or BROADCASTING"),
        Column("consume_from_where", TEXT, "where a group without an offset starts"),
        Column("members", ListOf(MEMBER), "connected clients; null if not known"),
    ]
)
