"""`subscriptions`: the subscriptions and clients of each group, one row per change.

Members and tags are only known from a live broker. SQL92 expressions can also be read from a store's
`config/consumerFilter.json`; in the rows of that source, the members are unknown.

A snapshot also adds a row without a group for each `source` that it read, see `consumer_offsets`.

Key: (`broker`, `source`, `group`, `topic`, `as_of`). Append-only.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column

MEMBER = StructType(
    [
        column("client_id", StringType(), "the client's id"),
        column("address", StringType(), "ip:port as the broker sees it"),
        column("language", StringType(), "language of the client: JAVA, CPP, GO, …"),
        column("version", IntegerType(), "ordinal of the client's RocketMQ version"),
        column("version_name", StringType(), "name of the client's version, as V5_5_0"),
    ]
)

SUBSCRIPTIONS = StructType(
    [
        column("broker", StringType(), "the store's name"),
        column("as_of", TimestampType(), "time at which the broker answered, or the file was written"),
        column("source", StringType(), "source: broker or file"),
        column("group", StringType(), "the consumer group; null in the row of a whole snapshot"),
        column("topic", StringType(), "topic that the group subscribes to"),
        column("expression_type", StringType(), "TAG or SQL92; null once the group has no subscription any more"),
        column(
            "expression",
            StringType(),
            "*, tags separated by ||, or SQL92; null once the group has no subscription any more",
        ),
        column("subscribed_at", LongType(), "version of the subscription: ms since 1970"),
        column("consume_type", StringType(), "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)"),
        column("message_model", StringType(), "CLUSTERING or BROADCASTING"),
        column("consume_from_where", StringType(), "where a group without an offset starts"),
        column("members", ArrayType(MEMBER, containsNull=False), "connected clients; null if not known"),
    ]
)
