"""Offsets of consumer groups at given moments, from the snapshots of `consumer_offsets`.

The rules are those of `pipelines.lag.offsets`: at a snapshot an offset is exact. Between two snapshots it was between
the two that were stored. After the last one, the group may have consumed everything.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.moments import AT, SampleTimes, latest_values_at
from commitlake.schemas.layouts.rocketmq.topics import BROADCAST_SUFFIX, LIGHT_PREFIX
from commitlake.schemas.tables.offset_snapshots import LEAST_OFFSET

POSITION = ("broker", "owner", "topic", "queue_id")
"""Columns of a position: `owner` is the group as in the key of its offset, with a suffix if it broadcasts."""
_MAX_QUEUES = 1 << 31


def snapshots_at(offsets: DataFrame, moments: SampleTimes) -> DataFrame:
    """Return each store's last snapshot at or before each moment, and the log's end at the snapshot after it.

    With the moments 60 and 120, and seconds for times:

        +--------+-----+-----+-------+        +--------+---+-----+----+-------+------------+
        |  broker|as_of|topic|log_end|        |  broker| at|taken|next|log_end|next_log_end|
        +--------+-----+-----+-------+        +--------+---+-----+----+-------+------------+
        |broker-a|   50| null|    700|   ->   |broker-a| 60|   50| 120|    700|         900|
        |broker-a|  120| null|    900|        |broker-a|120|  120|null|    900|        null|
        +--------+-----+-----+-------+        +--------+---+-----+----+-------+------------+

    Args:
        offsets: rows of `consumer_offsets`.
        moments: the moments.

    Returns:
        One row for each store and moment that has a snapshot before it: `broker`, `at`, `taken` and `next` (times of
        the snapshots; `next` may be null), `log_end`, `log_start` and `next_log_end` (long, null if not known).
    """
    marks = offsets.where((F.col("kind") == "group") & F.col("topic").isNull())
    marks = marks.select("broker", F.unix_micros("as_of").alias("taken"), "log_end", "log_start")
    in_order = Window.partitionBy("broker").orderBy("taken")
    following = {"next": F.lead("taken").over(in_order), "next_log_end": F.lead("log_end").over(in_order)}
    names = ("taken", "next", "log_end", "log_start", "next_log_end")
    latest = F.max_by(F.struct(*names), "taken")
    found = latest_values_at(marks.withColumns(following), ["broker"], F.col("taken"), moments, {"snapshot": latest})
    return found.select("broker", AT, *(f"snapshot.{name}" for name in names))


def offsets_at(offsets: DataFrame, snapshots: DataFrame, moments: SampleTimes) -> DataFrame:
    """Return, for each moment, the lower and upper bound of each group's offset in each queue.

    With snapshots at 50 and 120, the moments 60 and 120, and seconds for times:

        +-----+-----+------+        +-----+---+----+----+
        |group|as_of|offset|        |owner| at| low|high|
        +-----+-----+------+        +-----+---+----+----+
        | mail|   50|     3|   ->   | mail| 60|   3|   8|
        | mail|  120|     8|        | mail|120|   8|   8|
        +-----+-----+------+        +-----+---+----+----+

    Args:
        offsets: rows of `consumer_offsets`.
        snapshots: from `snapshots_at`, for the same moments.
        moments: the moments.

    Returns:
        One row for each moment and position that has an offset, or may have one: `POSITION`, `at`, `group` (without the
        suffix), `low` (not null) and `high`, which is null if the group may have consumed everything.
    """
    rows = offsets.where(
        (F.col("kind") == "group")
        & F.col("topic").isNotNull()
        & F.col("group").isNotNull()
        & (F.col("queue_id") >= 0)
        & (F.col("offset").isNull() | (F.col("offset") >= F.lit(LEAST_OFFSET)))
    )
    time = F.unix_micros("as_of").alias("as_of")
    rows = rows.select("broker", F.col("group").alias("owner"), "topic", "queue_id", time, "offset")
    latest = F.max_by(F.struct("offset"), "as_of")
    known = latest_values_at(rows, POSITION, F.col("as_of"), moments, {"known": latest})
    next_snapshot = snapshots.select("broker", AT, F.col("next").alias("as_of")).where(F.col(AT) != F.col("taken"))
    moved = (
        rows.join(next_snapshot, ["broker", "as_of"])
        .groupBy(*POSITION, AT)
        .agg(F.max_by(F.struct("offset"), "as_of").alias("moved"))
    )
    times = snapshots.select("broker", AT, "taken", "next")
    both = known.join(moved, [*POSITION, AT], "full_outer").join(times, ["broker", AT])
    first = F.col("known.offset")
    second = F.when(F.col("moved").isNull(), first).otherwise(F.col("moved.offset"))
    is_known = F.col(AT) == F.col("taken")
    is_last = ~is_known & F.col("next").isNull()
    low = F.when(is_known | is_last | (first <= second), first).otherwise(F.lit(0))
    high = F.when(is_known, first).when(is_last, F.lit(None)).when(first <= second, second)
    has_offset = first.isNotNull() | (~is_known & ~is_last & second.isNotNull())
    group = F.regexp_replace("owner", f"{BROADCAST_SUFFIX}$", "").alias("group")
    found = both.where(has_offset)
    return found.select(*POSITION, AT, group, F.coalesce(low, F.lit(0)).cast("long").alias("low"), high.alias("high"))


def store_topics_at(store_config: DataFrame, moments: SampleTimes) -> DataFrame:
    """Return each store's topics at each moment; before the first recorded settings, those of the first.

    Args:
        store_config: rows of `store_config`.
        moments: the moments.

    Returns:
        One row for each store, topic and moment: `broker`, `topic`, `at`, `queues` (its number of queues, long) and
        `has_batches` (True if a record may hold several messages).
    """
    since = F.unix_micros("recorded_at")
    first = F.min(since).over(Window.partitionBy("broker"))
    rows = store_config.withColumn("since", F.when(since > first, since).otherwise(F.lit(0)))
    rows = rows.where(F.col("kind") == "topic").withColumnRenamed("name", "topic")
    latest = F.max_by(F.struct("value"), "recorded_at")
    found = latest_values_at(rows, ["broker", "topic"], F.col("since"), moments, {"latest": latest})
    value = F.col("latest.value")
    counts = [F.get_json_object(value, f"$.{name}").try_cast("long") for name in ("readQueueNums", "writeQueueNums")]
    return found.where(value.isNotNull()).select(
        "broker",
        "topic",
        AT,
        F.coalesce(F.greatest(*counts), F.lit(_MAX_QUEUES)).alias("queues"),
        (F.coalesce(F.get_json_object(value, "$.attributes['queue.type']"), F.lit("")) == "BatchCQ").alias(
            "has_batches"
        ),
    )


def drop_impossible_offsets(positions: DataFrame, topics: DataFrame, max_impossible: int) -> DataFrame:
    """Remove offsets in queues that do not exist, if a store has more than `max_impossible` of them at a moment.

    Args:
        positions: from `offsets_at`.
        topics: from `store_topics_at`; of a store without any, all offsets are left.
        max_impossible: largest number of such offsets.

    Returns:
        Some of the rows of `positions`, with the same columns.
    """
    stores = topics.select("broker", AT, F.lit(True).alias("has_topics")).distinct()
    queues = topics.select("broker", "topic", AT, "queues")
    found = positions.join(stores, ["broker", AT], "left").join(queues, ["broker", "topic", AT], "left")
    is_light = F.col("topic").startswith(LIGHT_PREFIX)
    is_beyond = F.col("has_topics") & ~is_light & (F.col("queue_id") >= F.coalesce("queues", F.lit(0)))
    is_impossible = F.coalesce(is_beyond, F.lit(False))
    count = F.sum(is_impossible.cast("long")).over(Window.partitionBy("broker", AT))
    marked = found.withColumns({"is_impossible": is_impossible, "impossible": count})
    return marked.where(~F.col("is_impossible") | (F.col("impossible") <= max_impossible)).select(positions.columns)
