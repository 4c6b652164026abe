"""Rates: messages counted by groups and windows of store time, as analysts ask for them; not a table of a lake.

One row for each group and window that has messages. Windows begin at multiples of their length since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence

from commitlake.schemas.tables.columns import DOUBLE, INT32, INT64, TEXT, TIME, Column, Columns


def _count_column(name: str, comment: str) -> Column:
    return Column(name, INT64, comment)


RATE_GROUPS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("topic", TEXT, "topic in which the messages are stored"),
        Column("queue", INT32, "queue in which they are stored"),
        Column("tag", TEXT, "their tag; null for messages without one"),
        Column("kind", TEXT, "kind of record, as in messages"),
        Column("producer_host", TEXT, "the producer's host, without its port"),
        Column("producer_group", TEXT, "the producer's group; null where the message has none"),
        Column("origin_topic", TEXT, "topic that the messages were sent to"),
    ]
)
"""The columns by which messages can be counted."""
RATE_COUNTS = Columns(
    [
        _count_column("messages", "messages that the broker stored"),
        _count_column("bytes", "their stored size"),
        _count_column("sent", "messages that producers sent, each once, when consumers could see it"),
        _count_column("retries", "copies for a further try of a consumer group"),
        _count_column("dead_letters", "messages that a consumer group gave up"),
        _count_column("prepared", "half messages of transactions, each once"),
        _count_column("committed", "messages of committed transactions"),
        _count_column("clock_skew", "messages stored before they were born, by the clocks of producer and broker"),
    ]
)
"""The counts of each group and window, which are never null."""
_RATES = Columns(
    [
        Column("seconds", DOUBLE, "length of the part of the window that was asked for"),
        Column("messages_per_s", DOUBLE, "messages for each of these seconds"),
        Column("bytes_per_s", DOUBLE, "bytes for each of these seconds"),
    ]
)


def rate_columns(group_columns: Sequence[str]) -> Columns:
    """Return the columns of a table of rates that is grouped by the given columns of `RATE_GROUPS`."""
    window = Column("window_start", TIME, "start of the window, UTC")
    return Columns([*RATE_GROUPS.select_columns(group_columns), window, *RATE_COUNTS, *_RATES])
