"""First and last offsets of queues at given moments, from `messages`.

The rules are those of `pipelines.lag.queues`: within a queue, offsets rise in the order of the log. Where they begin
again, the topic was deleted and created again, and no group can consume the older messages.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.moments import AT, SampleTimes, repeat_until_next, window_up_to_row

QUEUE = ("broker", "topic", "queue_id")
_SEEN = "seen_at"


def with_queue_runs(messages: DataFrame, moments: SampleTimes) -> DataFrame:
    """Add to each message the first moment it counts at, and how often its queue's offsets had restarted before.

    A run ends where the offsets of a queue begin again:

        +--------+---------------+------------+        +---------------+------------+---+
        |queue_id|physical_offset|queue_offset|        |physical_offset|queue_offset|run|
        +--------+---------------+------------+        +---------------+------------+---+
        |       0|              0|           0|        |              0|           0|  0|
        |       0|            100|           1|   ->   |            100|           1|  0|
        |       0|            200|           0|        |            200|           0|  1|
        +--------+---------------+------------+        +---------------+------------+---+

    Args:
        messages: rows of `messages`.
        moments: the moments.

    Returns:
        The messages that were stored up to the last moment, with `seen_at` (microseconds since 1970) and `run`. Runs
        are those that are known at the last moment: if the clock was set back where a run begins, an earlier moment
        alone may not show it.
    """
    seen = messages.withColumn(_SEEN, moments.first_moment_from(F.unix_micros("store_timestamp")))
    seen = seen.where(F.col(_SEEN).isNotNull())
    rises = seen.groupBy(*QUEUE).agg(
        F.count("*").alias("messages"),
        F.max("queue_offset").alias("last"),
        F.min("queue_offset").alias("first"),
        F.max_by("queue_offset", "physical_offset").alias("newest"),
    )
    # Most queues never begin again, and only the others are sorted.
    has_more = F.col("messages") > F.col("last") - F.col("first") + F.lit(1)
    others = rises.where(has_more | (F.col("newest") < F.col("last"))).select(*QUEUE)
    in_order = Window.partitionBy(*QUEUE).orderBy("physical_offset")
    some = seen.select(*QUEUE, "queue_offset", "physical_offset").join(F.broadcast(others), [*QUEUE], "left_semi")
    some = some.withColumn("before", F.lag("queue_offset").over(in_order))
    begins = some.where(F.col("queue_offset") <= F.col("before")).groupBy(*QUEUE)
    found = seen.join(begins.agg(F.collect_list("physical_offset").alias("begins")), [*QUEUE], "left")
    earlier = F.filter("begins", lambda begin: begin <= F.col("physical_offset"))
    return found.withColumn("run", F.greatest(F.size(earlier), F.lit(0))).drop("begins")


def queue_spans_at(messages: DataFrame, snapshots: DataFrame, moments: SampleTimes) -> DataFrame:
    """Return, for each queue and moment, the first offset that the broker still has, and the end offset.

    With a log that begins at physical offset 100 at the moment 60:

        +--------+---------------+------------+---------+        +--------+---+-----+---+
        |queue_id|physical_offset|queue_offset|seen_at  |        |queue_id| at|first|end|
        +--------+---------------+------------+---------+        +--------+---+-----+---+
        |       0|              0|           0|       60|   ->   |       0| 60|    1|  3|
        |       0|            100|           1|       60|        +--------+---+-----+---+
        |       0|            200|           2|       60|
        +--------+---------------+------------+---------+

    Args:
        messages: from `with_queue_runs`.
        snapshots: from `snapshots_at`, for the same moments.
        moments: the moments.

    Returns:
        One row for each queue and moment that has a message before it: `QUEUE`, `at`, `first` (offset of the first
        message that the broker still has, or `end`; null if the start of the log is not known), `end`, `run` (the last
        one), `run_first` (its first offset) and `log_start`.
    """
    starts = snapshots.groupBy("broker").agg(F.sort_array(F.collect_set("log_start")).alias("starts"))
    logs = messages.join(F.broadcast(starts), ["broker"])
    part = F.size(F.filter("starts", lambda start: start <= F.col("physical_offset")))
    key = (*QUEUE, "run", "part")
    cells = logs.withColumn("part", part).withColumnRenamed(_SEEN, AT).groupBy(*key, AT)
    first = F.min(F.struct("physical_offset", "queue_offset"))
    found = cells.agg(
        F.min("queue_offset").alias("least"),
        F.max("queue_offset").alias("largest"),
        first.alias("begin"),
        F.max("physical_offset").alias("last"),
    )
    if moments.count != 1:
        least = {name: F.min(name).over(window_up_to_row(key)) for name in ("least", "begin")}
        found = repeat_until_next(
            found,
            key,
            moments,
            {**least, **{name: F.max(name).over(window_up_to_row(key)) for name in ("largest", "last")}},
        )
    times = snapshots.join(starts, ["broker"]).select(
        "broker",
        AT,
        "log_start",
        F.size(F.filter("starts", lambda start: start <= F.col("log_start"))).alias("start_part"),
    )
    found = found.join(times, ["broker", AT])
    here = Window.partitionBy(*QUEUE, AT)
    is_live = F.col("log_start").isNull() | (F.col("part") >= F.col("start_part"))
    found = found.withColumn("is_live", is_live)
    found = found.withColumns({"has_live": F.max("is_live").over(here)})
    found = found.where(F.col("is_live") | ~F.col("has_live"))
    found = found.withColumn("last_run", F.max("run").over(here))
    is_last = F.col("run") == F.col("last_run")
    spans = found.groupBy(*QUEUE, AT, "log_start", "has_live", F.col("last_run").alias("run")).agg(
        (F.max(F.when(is_last, F.col("largest"))) + F.lit(1)).alias("end"),
        F.min(F.when(is_last, F.col("least"))).alias("run_first"),
        F.min(F.when(is_last & F.col("is_live"), F.col("least"))).alias("first_live"),
        F.min(F.when(is_last, F.col("begin.physical_offset"))).alias("begin"),
        F.min("begin").alias("oldest"),
        F.max("last").alias("last"),
        F.max(F.when(~is_last, F.col("last"))).alias("before"),
    )
    first = F.when(F.col("log_start").isNotNull(), F.coalesce("first_live", "end"))
    return _reset_deleted_queues(spans.withColumn("first", first))


def _reset_deleted_queues(spans: DataFrame) -> DataFrame:
    """Set first and end offset to 0 for queues without a message since their topic was deleted and created again."""
    topic = Window.partitionBy("broker", "topic", AT)
    is_again = F.col("before").isNotNull() & F.col("has_live")
    found = spans.withColumn("old_end", F.max(F.when(is_again, F.col("before"))).over(topic))
    is_new = is_again & (F.col("begin") > F.col("old_end"))
    found = found.withColumn("new_begin", F.min(F.when(is_new, F.col("begin"))).over(topic))
    is_old = (F.col("begin") <= F.col("old_end")) | (F.col("oldest.queue_offset") > 0)
    is_deleted = F.col("has_live") & ~is_new & (F.col("last") < F.col("new_begin")) & is_old
    is_deleted = F.coalesce(is_deleted, F.lit(False))
    ends = {name: F.when(is_deleted, F.lit(0)).otherwise(F.col(name)) for name in ("first", "end")}
    return found.withColumns(ends).select(*QUEUE, AT, "first", "end", "run", "run_first", "log_start")
