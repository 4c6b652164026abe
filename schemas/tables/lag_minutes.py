"""`lag_minutes`: lag of consumer groups by broker, group, topic, queue and minute, as `commitlake lag --at` has it.

A row has the figures at a whole minute. It holds for the following minutes, too, until there is another row of the same
group and queue: rows are only written where something has changed. `lag_history` fills the minutes between. In these,
the seconds for which messages have been waiting grow by 60 a minute. At each whole hour every group and queue has a
row, so that a query never needs to look back for more than an hour, and a query by hours, or by days, needs nothing but
these rows (`WHERE NOT within_hour`), which are stored together. A group or queue that is gone has a last row without
figures, whose verdict is null.

Between two snapshots, a group's offset is not known exactly. Each figure therefore has a lower and an upper bound,
which are equal where it is known. An upper bound is null if messages of that time may be missing from the lake.
Messages that the group's filter leaves out do not count.

`commitlake archive --backfill lag_minutes` adds the minutes that are missing, up to the last snapshot whose messages
are archived. It computes minutes again if rows for them came late: from the snapshot before a late one, and from the
time of late messages on. The log of the table records up to which minute it has each store, and up to which version it
has read the tables from which it is computed. What `erase` removes stays counted, and minutes whose snapshots have
expired since keep their rows.

Key: (`broker`, `kind`, `group`, `topic`, `queue_id`, `broadcasts`, `minute`).
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BOOLEAN, INT64, TEXT, TIME, Column, Columns
from commitlake.schemas.tables.lag import QUEUE_LAG

KEY = ("broker", "kind", "group", "topic", "queue_id", "broadcasts")
"""Columns that identify a group in a queue."""
MINUTE_SECONDS = 60
"""Length of a minute in seconds; minutes are multiples of it since 1970, UTC."""
REPEATED_MINUTES = 60
"""Minutes after which every group and queue has a row again; these are multiples of it since 1970, UTC."""
_BROADCASTS = Column("broadcasts", BOOLEAN, "true if each client of the group gets every message")
_MINUTE = Column("minute", TIME, "time of the figures: a whole minute, UTC")
_WITHIN_HOUR = Column("within_hour", BOOLEAN, "false in the rows of whole hours, which every group and queue has")
_CONSUMED = Column(
    "consumed",
    INT64,
    "by how much offset_min has risen since the row before; 0 if it was set back, null in a first row",
)
_VERDICT = Column(
    "verdict", TEXT, "ok, slow, stalled, stopped, rewound, lost, ahead or unknown; null once the group or queue is gone"
)
LAG_MINUTES = Columns(
    [
        *QUEUE_LAG.select_columns(["broker", "kind", "group", "topic", "queue_id"]),
        _BROADCASTS,
        _MINUTE,
        _WITHIN_HOUR,
        *QUEUE_LAG.drop_columns("broker", "kind", "group", "topic", "queue_id", "as_of"),
        _CONSUMED,
        _VERDICT,
    ]
)
"""The columns of `lag_minutes`; those that `AnalysisLake.lag` has, too, have its figures."""
