"""Lag of consumer groups, as analysts ask for it; not a table of a lake.

`QUEUE_LAG` has one row for each group, queue and time, `GROUP_LAG` one row for each group and time. Between two
snapshots a group's offset is not known exactly. Each figure therefore has a lower and an upper bound, which are equal
where it is known. An upper bound is null if messages of that time may be missing from the lake.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import DOUBLE, INT32, INT64, TEXT, TIME, Column, Columns

_FIGURES = Columns(
    [
        Column("messages_min", INT64, "messages behind that the group wants, at least"),
        Column("messages_max", INT64, "messages behind that the group wants, at most; null if not known"),
        Column("bytes_min", INT64, "stored size of these messages, at least"),
        Column("bytes_max", INT64, "stored size of these messages, at most; null if not known"),
        Column("time_lag_s_min", DOUBLE, "seconds for which the next message has been waiting, at least"),
        Column(
            "time_lag_s_max", DOUBLE, "seconds for which the next message has been waiting, at most; null if not known"
        ),
        Column("next_message_time", TIME, "store time of the next message, UTC; null if no message is known to wait"),
    ]
)
QUEUE_LAG = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("kind", TEXT, "group, or retry for retry topics"),
        Column("group", TEXT, "the consumer group"),
        Column("topic", TEXT, "the topic"),
        Column("queue_id", INT32, "the queue"),
        Column("as_of", TIME, "time of the figures, UTC"),
        Column(
            "offset_min", INT64, "next message that the group consumes, at least; where it has no offset, the first"
        ),
        Column("offset_max", INT64, "next message that the group consumes, at most; null if not known"),
        Column("end", INT64, "offset of the queue's next message; null if not known"),
        *_FIGURES,
        Column("filter", TEXT, "the group's filter: *, tags separated by ||, or sql: and SQL92; null if not known"),
        Column("members", INT32, "clients of the group; null if not known"),
    ]
)
"""Lag of a group in a queue: these columns have the names and the figures of the rows of `commitlake lag`."""
GROUP_LAG = Columns(
    [
        Column("group", TEXT, "the consumer group"),
        Column("as_of", TIME, "time of the figures, UTC; the earliest if those of brokers have different times"),
        Column("queues", INT64, "queues that the group consumes"),
        Column("queues_behind", INT64, "queues in which messages wait, or may wait"),
        *_FIGURES,
    ]
)
"""Lag of a group in all queues, as the table of `commitlake lag` sums it: seconds are those of the longest wait."""
