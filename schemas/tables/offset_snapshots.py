"""Tables written by snapshots: `consumer_offsets` has groups' offsets, `subscriptions` the topics that they consume."""

from __future__ import annotations

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns, ListOf

LEAST_OFFSET = -(1 << 62)
"""The least offset of a group that a reader believes: those far below zero come from other programs only."""
CONSUMER_OFFSETS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("as_of", TIME, "time of the offset: when the file was written, or the broker answered"),
        Column("kind", TEXT, "group, delay, timer or timer_time"),
        Column("group", TEXT, "the consumer group; null for other kinds"),
        Column("topic", TEXT, "the topic; null in the row of a whole snapshot"),
        Column("queue_id", INT32, "queue of the topic"),
        Column("offset", INT64, "next message of the queue; null once the broker has no offset any more"),
        Column("source", TEXT, "source of the offset: file or broker"),
        Column(
            "log_end",
            INT64,
            "in the row of a whole snapshot: physical offset of the end of the broker's log; null if not known",
        ),
        Column(
            "log_start",
            INT64,
            "in the row of a whole snapshot: physical offset of the start of the broker's log; null if not known",
        ),
    ]
)
"""Offsets of groups, delay levels and timers, one row per change.

A snapshot reads the offsets from a broker's files or from a live broker, and adds a row for each offset that has
changed since the previous snapshot. So the offset at a given time is in the last row of its key at or before that time.

Each snapshot also adds a row without a topic for each `kind` that it read. It means that at this time every offset
without a new row was unchanged. It is added if an offset has moved, or the log has grown or lost segments; if nothing
has changed at all, at most once in ten minutes (the heartbeat).

Key: (`broker`, `kind`, `group`, `topic`, `queue_id`, `as_of`). Append-only.

    kind        group     topic                  queue_id   offset
    group       a group   what it consumes       a queue    the next message that it consumes
    delay       null      the schedule topic     level - 1  the next message that is delivered
    timer       null      rmq_sys_wheel_timer    0          the next message that is put on the timer wheel
    timer_time  null      rmq_sys_wheel_timer    0          ms since 1970: timers due before are delivered
"""


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
"""The subscriptions and clients of each group, one row per change.

Members and tags are only known from a live broker. SQL92 expressions can also be read from a store's
`config/consumerFilter.json`; in the rows of that source, the members are unknown.

A snapshot also adds a row without a group for each `source` that it read, see `consumer_offsets`.

Key: (`broker`, `source`, `group`, `topic`, `as_of`). Append-only.
"""
