"""`topic_minutes`: messages counted by broker, topic, queue, tag, kind and minute of store time.

One row per archive task and key (`broker`, `topic`, `queue_id`, `tag`, `other_tags`, `kind`, `minute`). If several
tasks or runs archived messages of one minute, each has a row for it: sum the counts, and merge the extremes and
sketches. When `maintain` merges files, it also merges such rows into one, with the `run_id` `joined-…`. The busiest
second of several rows is that of one row, or of the rows that agree on it; a second that is shared by several rows may
have had more messages. A task counts up to 64 MiB of rows at once, and stores at most the `MAX_TAGS` most frequent tags
of each topic in them; messages with other tags are counted together, in rows with `other_tags`.

Latency is `store_timestamp` - `born_timestamp`. A copy that the broker stored later on purpose (a delivered delayed
message, a timer, a retry, a dead letter, a committed transaction) is counted in the columns `wait_…` instead of
`latency_…`. A message with a store time before its born time is only counted in `clock_skew_messages`.

Sketches are KLL sketches of doubles (Apache DataSketches) with k = `SKETCH_K`, as the library serializes them. Python
reads them with `datasketches.kll_doubles_sketch`, Spark with `kll_merge_agg_double`, `kll_sketch_get_quantile_double`
and others. The rank error of a quantile of merged sketches is at most 0.7 % with 99 % confidence; a sketch of up to
`SKETCH_K` values is exact.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BINARY, BOOLEAN, INT32, INT64, TEXT, TIME, Column, Columns

MINUTE_SECONDS = 60
"""Length of a minute in seconds; minutes begin at multiples of it since 1970, UTC."""
MAX_TAGS = 64
"""Largest number of tags of one topic that are named in one count of a task."""
SKETCH_K = 400
"""Size parameter of the sketches."""


def _long_column(name: str, comment: str) -> Column:
    return Column(name, INT64, comment)


TOPIC_MINUTES = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("topic", TEXT, "as in messages"),
        Column("queue_id", INT32, "as in messages"),
        Column("tag", TEXT, "tags of messages; null for messages without one, and if other_tags is true"),
        Column("other_tags", BOOLEAN, f"true if the row counts all tags beyond the {MAX_TAGS} most frequent"),
        Column("kind", TEXT, "as in messages"),
        Column("minute", TIME, "start of the minute, UTC; null for messages without a store_timestamp"),
        _long_column("first_physical_offset", "smallest physical offset of the counted rows"),
        _long_column("last_physical_offset", "largest physical offset of the counted rows"),
        _long_column("messages", "number of rows of messages"),
        _long_column("bytes", "sum of size"),
        _long_column("body_bytes", "sum of body_size"),
        Column("busiest_second", TIME, "the second with the most messages, UTC; of several the first"),
        _long_column("busiest_second_messages", "messages in that second"),
        _long_column("max_size", "size of the largest record, bytes"),
        Column("size_sketch", BINARY, "sketch of size"),
        _long_column("latency_messages", "number of messages with a latency"),
        _long_column("latency_ms", "sum of their latencies"),
        _long_column("max_latency_ms", "the longest latency; null if there is none"),
        Column("latency_sketch", BINARY, "sketch of the latencies in milliseconds; null if there are none"),
        _long_column("wait_messages", "number of copies that were stored later on purpose"),
        _long_column("wait_ms", "sum of their times from born to stored"),
        _long_column("max_wait_ms", "the longest of these times; null if there is none"),
        Column("wait_sketch", BINARY, "sketch of these times in milliseconds; null if there are none"),
        _long_column("clock_skew_messages", "messages with a store time before their born time, by the two clocks"),
        _long_column("max_clock_skew_ms", "the largest such difference; null if there is none"),
        _long_column("reconsumed", "messages with reconsume_times above 0"),
        _long_column(
            "rechecked", "half messages that the broker stored again when it asked the producer for the outcome"
        ),
        _long_column("committed", "messages of committed transactions"),
        Column("run_id", TEXT, "the archive run, as in archive_runs; backfill-… for rows added later"),
    ]
)
"""The columns of `topic_minutes`."""
