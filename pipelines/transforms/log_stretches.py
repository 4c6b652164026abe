"""Parts of the brokers' logs: what archive runs have counted, the rows within, and messages whose bodies are kept."""

from __future__ import annotations

import datetime

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

STRETCH_COLUMNS = ("broker", "first", "last")
HAS_PROFILE = "has_profile"
_DATED = "store_date="  # names of packs begin with this
_UNDATED = f"{_DATED}__"  # stands for no date in a name, and sorts after every date


def mark_counted_runs(runs: DataFrame, profiles: DataFrame) -> DataFrame:
    """Mark each archive run by whether it has a profile.

    >>> runs = spark.sql("select * from values ('r1', 1L), ('r2', 2L) as runs(run_id, sequence)")
    >>> profiles = spark.sql("select * from values ('r0'), ('r2'), ('r2') as profiles(run_id)")
    >>> mark_counted_runs(runs, profiles).orderBy("run_id").show()
    +------+--------+-----------+
    |run_id|sequence|has_profile|
    +------+--------+-----------+
    |    r0|    NULL|       true|
    |    r1|       1|      false|
    |    r2|       2|       true|
    +------+--------+-----------+
    <BLANKLINE>

    Args:
        runs: at least `run_id` and `sequence`, as in `archive_runs`; one row per run.
        profiles: at least `run_id`, as in `profiles`.

    Returns:
        `run_id`, `sequence` and `has_profile`; one row per run in either table. `sequence` is null for a run whose row
        in `archive_runs` has expired; `has_profile` is never null.
    """
    counted = profiles.select("run_id").distinct().withColumn(HAS_PROFILE, F.lit(True))
    return (
        runs.select("run_id", "sequence")
        .join(counted, on="run_id", how="full_outer")
        .select("run_id", "sequence", F.coalesce(HAS_PROFILE, F.lit(False)).alias(HAS_PROFILE))
    )


def to_counted_stretches(marked_runs: DataFrame, profiles: DataFrame) -> DataFrame:
    """List the ranges of the brokers' logs that runs with a profile took.

    Between two runs without a profile, all of each log is counted, so that there are few stretches however many runs
    there are. A run without a `sequence` is older than all others.

    >>> runs = spark.sql('''
    ...     select * from values ('r1', 1L, true), ('r2', 2L, true), ('r3', 3L, false), ('r4', 4L, true)
    ...     as runs(run_id, sequence, has_profile)''')
    >>> profiles = spark.sql('''
    ...     select * from values ('r1', 'a', 0L, 90L), ('r2', 'a', 100L, 190L), ('r4', 'a', 300L, 390L)
    ...     as profiles(run_id, broker, first_physical_offset, last_physical_offset)''')
    >>> to_counted_stretches(runs, profiles).orderBy("first").show()
    +------+-----+----+
    |broker|first|last|
    +------+-----+----+
    |     a|    0| 191|
    |     a|  300| 391|
    +------+-----+----+
    <BLANKLINE>

    Args:
        marked_runs: from `mark_counted_runs`.
        profiles: at least `run_id`, `broker`, `first_physical_offset` and `last_physical_offset`, as in `profiles`.

    Returns:
        `broker`, `first` and `last`: the physical offset of the first message, and one more than that of the last. One
        row per broker and sequence of runs with a profile.
    """
    order = Window.orderBy(F.coalesce("sequence", F.lit(0)))
    numbered = marked_runs.withColumn("stretch", F.count_if(~F.col(HAS_PROFILE)).over(order))
    return (
        profiles.join(numbered.where(HAS_PROFILE).select("run_id", "stretch"), on="run_id", how="inner")
        .groupBy("broker", "stretch")
        .agg(
            F.min("first_physical_offset").alias("first"),
            (F.max("last_physical_offset") + 1).alias("last"),
        )
        .select(*STRETCH_COLUMNS)
    )


def within_stretches(messages: DataFrame, stretches: DataFrame) -> DataFrame:
    """Keep the messages within the given ranges of the brokers' logs.

    >>> messages = spark.sql("select * from values ('a', 90L), ('a', 191L), ('b', 0L) as m(broker, physical_offset)")
    >>> stretches = spark.sql("select * from values ('a', 0L, 191L), ('a', 300L, 391L) as s(broker, first, last)")
    >>> within_stretches(messages, stretches).show()
    +------+---------------+
    |broker|physical_offset|
    +------+---------------+
    |     a|             90|
    +------+---------------+
    <BLANKLINE>

    Args:
        messages: at least `broker` and `physical_offset`.
        stretches: `broker`, `first` and `last`, as from `to_counted_stretches`; few rows that do not overlap.

    Returns:
        The columns of `messages`, `broker` first; one row per message within one of the ranges.
    """
    offset = F.col("physical_offset")
    joined = messages.join(F.broadcast(stretches), on="broker", how="inner")
    return joined.where((offset >= F.col("first")) & (offset < F.col("last"))).drop("first", "last")


def with_kept_bodies(messages: DataFrame, since: datetime.date) -> DataFrame:
    """Keep the messages whose bodies cannot have expired.

    A pack expires by the date in its name. One without a date holds messages without a time, or of many dates, and
    expires by the time when it was written, which is not before the last of them was stored.

    >>> messages = spark.sql('''
    ...     select physical_offset, named_struct('pack', pack) as body_ref, date(day) as store_date
    ...     from values
    ...         (0L, 'store_date=2026-11-19/p1', '2026-11-19'),  -- expired
    ...         (1L, 'store_date=2026-11-20/p2', '2026-11-20'),
    ...         (2L, 'store_date=__/p3',         '2026-11-19'),  -- may have expired
    ...         (3L, 'store_date=__/p3',         '2026-11-20'),
    ...         (4L, null,                       '2026-11-19')   -- has no body
    ...         as m(physical_offset, pack, day)''')
    >>> kept = with_kept_bodies(messages, datetime.date(2026, 11, 20))
    >>> kept.select("physical_offset", "body_ref.pack").show(truncate=False)
    +---------------+------------------------+
    |physical_offset|pack                    |
    +---------------+------------------------+
    |1              |store_date=2026-11-20/p2|
    |3              |store_date=__/p3        |
    |4              |NULL                    |
    +---------------+------------------------+
    <BLANKLINE>

    Args:
        messages: at least `body_ref` and `store_date`, as in `messages`.
        since: first date whose bodies cannot have expired.

    Returns:
        The columns of `messages`; one row per message whose body must still exist, or that has no body.
    """
    pack = F.col("body_ref.pack")
    is_dated_since = pack >= F.lit(f"{_DATED}{since.isoformat()}")
    is_stored_since = F.coalesce(F.col("store_date") >= F.lit(since), F.lit(False))
    return messages.where(F.coalesce(is_dated_since & (~pack.startswith(_UNDATED) | is_stored_since), F.lit(True)))
