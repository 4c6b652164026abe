"""Messages counted by groups and windows of time, and their rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.rates import RATE_COUNTS, rate_columns

WINDOW = "window_start"
_SECOND_US = 1_000_000


def count_by_window(
    rows: DataFrame, groups: Mapping[str, str], window_column: str, counts: Mapping[str, str]
) -> DataFrame:
    """Count rows by group and time window.

    With the groups `topic`, windows of a minute, and `count(*)` as messages:

        +------+-------------------+        +------+-------------------+--------+
        | topic|    store_timestamp|        | topic|       window_start|messages|
        +------+-------------------+        +------+-------------------+--------+
        |orders|2026-11-20 14:00:07|   ->   |orders|2026-11-20 14:00:00|       2|
        |orders|2026-11-20 14:00:59|        |orders|2026-11-20 14:01:00|       1|
        |orders|2026-11-20 14:01:00|        +------+-------------------+--------+
        +------+-------------------+

    Args:
        rows: rows of any table.
        groups: SQL of each group, by the name of its column.
        window_column: SQL of the start of the window of a row.
        counts: SQL of each count, an aggregate, by name.

    Returns:
        One row for each group and window: the groups, which may be null, `window_start`, and the counts as long, which
        are not null.
    """
    keys = [F.expr(sql).alias(name) for name, sql in groups.items()]
    sums = [F.coalesce(F.expr(sql).cast("long"), F.lit(0)).alias(name) for name, sql in counts.items()]
    return rows.groupBy(*keys, F.expr(window_column).alias(WINDOW)).agg(*sums)


def compute_rates(
    counted_parts: Sequence[DataFrame], groups: Sequence[str], window_us: int, start_us: int, end_us: int
) -> DataFrame:
    """Sum the counts of all parts by group and window, and divide them by the window's seconds in the time range.

    For a time from 14:01 and windows of five minutes:

        +------+-------------------+--------+     +------+-------------------+--------+-------+--------------+
        | topic|       window_start|messages|     | topic|       window_start|messages|seconds|messages_per_s|
        +------+-------------------+--------+     +------+-------------------+--------+-------+--------------+
        |orders|2026-11-20 14:00:00|      30|     |orders|2026-11-20 14:00:00|      60|  240.0|          0.25|
        |orders|2026-11-20 14:00:00|      30| ->  |orders|2026-11-20 14:05:00|     600|  300.0|           2.0|
        |orders|2026-11-20 14:05:00|     600|     +------+-------------------+--------+-------+--------------+
        +------+-------------------+--------+

    Args:
        counted_parts: at least one part, as `count_by_window` returns it, with all of `RATE_COUNTS`.
        groups: the columns of groups.
        window_us: length of a window, microseconds.
        start_us: start of the time, microseconds since 1970.
        end_us: end of the time, exclusive.

    Returns:
        One row for each group and window: `rate_columns`. Counts are not null.
    """
    sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in RATE_COUNTS.names]
    counted = reduce(DataFrame.unionByName, counted_parts).groupBy(*groups, WINDOW).agg(*sums)
    opened = F.unix_micros(WINDOW)
    from_us, to_us = F.greatest(opened, F.lit(start_us)), F.least(opened + F.lit(window_us), F.lit(end_us))
    timed = counted.withColumn("seconds", (to_us - from_us) / F.lit(_SECOND_US))
    for name in ("messages", "bytes"):
        timed = timed.withColumn(f"{name}_per_s", F.col(name) / F.col("seconds"))
    return to_columns(timed, rate_columns(groups))
