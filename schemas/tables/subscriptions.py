"""`subscriptions`: which messages each group wanted, and which clients it had, one row per change.

Members and tags are known from a live broker only. The SQL92 expressions of a store's `config/consumerFilter.json` are
known without it; their rows have no members, and say nothing about them.

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
        column("language", StringType(), "of the client: JAVA, CPP, GO, …"),
        column("version", IntegerType(), "ordinal of the client's RocketMQ version"),
        column("version_name", StringType(), "its name, as V5_5_0"),
    ]
)

SUBSCRIPTIONS = StructType(
    [
        column("broker", StringType(), "the store's name"),
        column("as_of", TimestampType(), "when the broker answered, or its file was written"),
        column("source", StringType(), "broker or file: where it was read"),
        column("group", StringType(), "the consumer group; null in the row of a snapshot as a whole"),
        column("topic", StringType(), "what the group subscribes to"),
        column("expression_type", StringType(), "TAG or SQL92; null once the group subscribes no longer"),
        column(
            "expression", StringType(), "*, tags with || between, or SQL92; null once the group subscribes no longer"
        ),
        column("subscribed_at", LongType(), "version of the subscription: ms since 1970"),
        column("consume_type", StringType(), "CONSUME_PASSIVELY (push) or CONSUME_ACTIVELY (pull)"),
        column("message_model", StringType(), "CLUSTERING or BROADCASTING"),
        column("consume_from_where", StringType(), "where a group without an offset begins"),
        column("members", ArrayType(MEMBER, containsNull=False), "clients that are connected; null where not known"),
    ]
)
