"""`consumer_offsets`: offsets of groups, delay levels and timers, one row per change.

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

from __future__ import annotations

from pyspark.sql.types import IntegerType, LongType, StringType, StructType, TimestampType

from commitlake.schemas.tables.columns import column

CONSUMER_OFFSETS = StructType(
    [
        column("broker", StringType(), "the store's name"),
        column("as_of", TimestampType(), "time of the offset: when the file was written, or the broker answered"),
        column("kind", StringType(), "group, delay, timer or timer_time"),
        column("group", StringType(), "the consumer group; null for other kinds"),
        column("topic", StringType(), "the topic; null in the row of a whole snapshot"),
        column("queue_id", IntegerType(), "queue of the topic"),
        column("offset", LongType(), "next message of the queue; null once the broker has no offset any more"),
        column("source", StringType(), "source of the offset: file or broker"),
        column(
            "log_end",
            LongType(),
            "in the row of a whole snapshot: physical offset of the end of the broker's log; null if not known",
        ),
        column(
            "log_start",
            LongType(),
            "in the row of a whole snapshot: physical offset of the start of the broker's log; null if not known",
        ),
    ]
)
