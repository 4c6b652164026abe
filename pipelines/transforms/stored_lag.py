"""Lag of consumer groups at given moments, from the rows of `lag_minutes`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.pipelines.transforms.moments import AT, SampleTimes
from commitlake.schemas.tables.lag import QUEUE_LAG
from commitlake.schemas.tables.lag_minutes import KEY, MINUTE_SECONDS, REPEATED_MINUTES

_HOUR_US = REPEATED_MINUTES * MINUTE_SECONDS * 1_000_000


def stored_lag_at(minutes: DataFrame, moments: SampleTimes) -> DataFrame:
    """Return the lag of each group in each queue at moments that are whole minutes.

    A row holds until the next one of its group and queue, or to the end of its hour. Meanwhile, waiting times grow.
    With the moments 00:00, 00:02 and 00:04:

        +-----+------+------------+--------------+        +-----+-----+------------+--------------+
        |group|minute|messages_max|time_lag_s_max|        |group|as_of|messages_max|time_lag_s_max|
        +-----+------+------------+--------------+        +-----+-----+------------+--------------+
        | mail| 00:00|           0|           0.0|        | mail|00:00|           0|           0.0|
        | mail| 00:01|           2|           5.5|   ->   | mail|00:02|           2|          65.5|
        +-----+------+------------+--------------+        | mail|00:04|           2|         185.5|
                                                          +-----+-----+------------+--------------+

    Args:
        minutes: `lag_minutes`; it has the lag at all moments of the stores in it.
        moments: the moments.

    Returns:
        One row for each moment, store, group, topic and queue, with the columns `QUEUE_LAG`. Times are UTC.
    """
    first_us, last_us = moments.first_us, moments.last_us
    assert isinstance(first_us, int)
    if last_us is None:
        return to_columns(minutes.where(F.lit(False)).withColumn("as_of", F.col("minute")), QUEUE_LAG)
    # Conditions on the column itself, by which Delta can skip data files.
    between = F.col("minute") >= F.timestamp_micros(F.lit(first_us - first_us % _HOUR_US))
    rows = minutes.where(between & (F.col("minute") <= F.timestamp_micros(F.lit(last_us))))
    if not (first_us % _HOUR_US or (moments.count > 1 and moments.every_us % _HOUR_US)):
        rows = rows.where(~F.col("within_hour"))  # all moments are whole hours, which have their own rows
    minute = F.unix_micros("minute")
    rows = rows.withColumns({"since": minute, "hour": minute - F.pmod(minute, F.lit(_HOUR_US))})
    following = F.lead("since").over(Window.partitionBy(*KEY, "hour").orderBy("since"))
    rows = rows.withColumn("holds_before", F.coalesce(following, F.col("hour") + F.lit(_HOUR_US)))
    start = moments.first_moment_from(F.col("since"))
    rows = rows.withColumn("start", start).where(
        F.col("verdict").isNotNull() & (F.col("start") < F.col("holds_before"))
    )
    last = F.least(F.col("holds_before") - F.lit(1), F.lit(last_us))
    rows = rows.withColumn(AT, F.explode(F.sequence("start", last, F.lit(moments.every_us))))
    figures = {
        "as_of": F.timestamp_micros(AT),
        "time_lag_s_min": _waited_seconds("time_lag_s_min", F.col("messages_min") > 0),
        "time_lag_s_max": _waited_seconds("time_lag_s_max", F.col("next_message_time").isNotNull()),
    }
    return to_columns(rows.withColumns(figures), QUEUE_LAG)


def _waited_seconds(name: str, is_waiting: Column) -> Column:
    """Return a waiting time as of the moment, in milliseconds precision; null where it is not known."""
    seconds, passed = F.col(name), (F.col(AT) - F.col("since")) / F.lit(1e6)
    later = F.rint((seconds + passed) * 1000) / 1000
    return F.when(F.coalesce(is_waiting, F.lit(False)) & (passed > 0), later).otherwise(seconds)
