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

from commitlake.schemas.tables.columns import INT32, INT64, TEXT, TIME, Column, Columns

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
