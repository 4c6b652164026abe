"""Journeys and hops as DataFrames of Spark: pure functions of DataFrames, without session, path, clock or action."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.misfits import (
    BETWEEN,
    RARE_PERCENT,
    UNEXPECTED,
    Misfits,
    missing_reason,
    stuck_reason,
)
from commitlake.pipelines.journeys.sql_statements import STEP_COLUMNS, TOTALS, Sources, Statements, Sum
from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.columns import Scalar
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS, OPEN_STATES, STEP

_SOURCES = Sources("{messages}", "{edges}")
_SUMS = {Sum.SUM: F.sum, Sum.MIN: F.min, Sum.MAX: F.max}


def journeys_of(messages: DataFrame, edges: DataFrame, question: JourneysQuestion) -> DataFrame:
    """Return what happened to each business key that has a record in a window.

    An order is paid in a transaction, and its shipping fails once. Copies of a message have its `unique_key`:

        +----+----------+----------+------+---------------+        +-------+---------------------------+-------+
        |keys|unique_key|     topic|  kind|store_timestamp|        |    key|                       path|retries|
        +----+----------+----------+------+---------------+        +-------+---------------------------+-------+
        |[o7]|        U1|    orders|normal|          14:00|        |     o7|[orders, payments, shipping]|      1|
        |[o7]|        U2|  HALF_...|  half|          14:01|   ->   +-------+---------------------------+-------+
        |[o7]|        U2|  payments|normal|          14:02|
        |[o7]|        U3|  shipping|normal|          14:05|
        |[o7]|        U3|%RETRY%b..| retry|          14:06|
        +----+----------+----------+------+---------------+

    Args:
        messages: rows of `messages`, as the selection of the question chooses them; their time is chosen here.
        edges: rows of `edges`.
        question: the question.

    Returns:
        One row for each key that has a record in the window: `JOURNEYS`. Only `due_at` and, in steps, `hop_ms`
        and `visible_at` may be null.
    """
    sql = Statements(question, Engine.SPARK, _SOURCES).steps_sql()
    steps = messages.sparkSession.sql(sql, messages=messages, edges=edges)
    step = F.when(F.col("number") <= question.max_steps, F.struct(*_step_fields()))
    grouped = steps.groupBy("key").agg(
        F.sort_array(F.collect_list(step)).alias("steps"),
        F.max_by("state", "number").alias("last_state"),
        F.max_by("topic", "number").alias("last_topic"),
        *(_SUMS[how](column).alias(name) for name, (how, column) in TOTALS.items()),
    )
    outcome = F.col("last_state")
    for rank, state in enumerate(reversed(OPEN_STATES), 1):
        outcome = F.when(F.col("openness") == rank, F.lit(str(state))).otherwise(outcome)
    return to_columns(
        grouped.withColumns(
            {
                "path": F.transform("steps", lambda each: F.coalesce(each["topic"], F.lit(""))),  # so that none is null
                "outcome": outcome,
                "began_before": (F.col("first_at") < question.since_us) | (F.col("lacks_first") > 0),
                "went_on_after": F.col("last_at") >= question.until_us,
                "is_cut": F.col("messages") > question.max_steps,
                "order_uncertain": F.col("order_uncertain") > 0,
                **{name: F.timestamp_micros(name) for name in ("first_at", "last_at", "last_sent_at", "due_at")},
            }
        ),
        JOURNEYS,
    )


def hops_of(messages: DataFrame, edges: DataFrame, question: JourneysQuestion, window_us: int | None) -> DataFrame:
    """Return how often, and how fast, keys go from one topic to the next one.

        +---+----------+--------+        +-----+------+--------+----+------+-------------------+
        |key|     topic| sent_at|        | hour|source|  target|hops|p50_ms|             delays|
        +---+----------+--------+        +-----+------+--------+----+------+-------------------+
        | o7|    orders|14:00:00|        |14:00|orders|payments|   2|  1300|{1300: 1, 90000: 1}|
        | o7|  payments|14:01:30|   ->   +-----+------+--------+----+------+-------------------+
        | o8|    orders|14:00:10|
        | o8|  payments|14:00:11.234|
        +---+----------+--------+

    Args:
        messages: rows of `messages`, as the selection of the question chooses them; their time is chosen here.
        edges: rows of `edges`.
        question: the question.
        window_us: length of the windows, microseconds; None for one window.

    Returns:
        One row for each window and pair of topics that follow each other: `HOPS`. Nothing is null.
    """
    sql = Statements(question, Engine.SPARK, _SOURCES).hops_sql(window_us)
    rows = messages.sparkSession.sql(sql, messages=messages, edges=edges)
    keys = ("hour_us", "source", "target", "total", "p50_ms", "p95_ms", "p99_ms")
    entries = F.sort_array(F.collect_list(F.struct("bound_ms", "hops")))
    grouped = rows.groupBy(*keys).agg(F.map_from_entries(entries).alias("delays"))
    hour = F.timestamp_micros("hour_us").alias("hour")
    return to_columns(grouped.select("*", hour, F.col("total").alias("hops")), HOPS)


def _step_fields() -> list[SparkColumn]:
    found = []
    for column in STEP:
        value = F.col(STEP_COLUMNS[column.name])
        found.append((F.timestamp_micros(value) if column.type is Scalar.TIME else value).alias(column.name))
    return found


def paths_of(journeys: DataFrame) -> DataFrame:
    """Count the journeys on each path; columns and order as in `sum_path_counts`, with `path` as a list of topics."""
    is_open = F.col("outcome").isin("prepared", "waiting")
    counts = (
        journeys.where("NOT began_before")
        .groupBy("path")
        .agg(
            F.count("*").alias("keys"),
            F.count_if(F.col("outcome") == "dead").alias("dead"),
            F.count_if(is_open).alias("open"),
        )
    )
    return counts.orderBy(F.col("keys").desc(), F.array_join("path", BETWEEN))


def first_keys_of(journeys: DataFrame, paths: Sequence[Sequence[str]], limit: int) -> DataFrame:
    """Return `path` and `key` of the first `limit` journeys on each of the given paths, in the order of keys."""
    wanted = F.array_join("path", BETWEEN).isin([BETWEEN.join(path) for path in paths])
    number = F.row_number().over(Window.partitionBy("path").orderBy("key"))
    chosen = journeys.where("NOT began_before").where(wanted).select("path", "key", number.alias("number"))
    return chosen.where(F.col("number") <= limit).select("path", "key").orderBy("key")


def misfits_of(journeys: DataFrame, criteria: Misfits) -> DataFrame:
    """Return the rows of `misfits_of_table`, in the order of their keys."""
    found = journeys.where("NOT began_before")
    reasons = [
        F.when(~F.array_contains("path", topic) & ~F.col("is_cut"), F.lit(missing_reason(topic)))
        for topic in criteria.missing
    ]
    for topic, length in criteria.stuck:
        is_old = F.col("last_sent_at") <= F.lit(criteria.known_until - length)
        reasons.append(F.when((F.col("last_topic") == F.lit(topic)) & is_old, F.lit(stuck_reason(topic))))
    if criteria.is_unexpected:
        counts = found.groupBy("path").agg(F.count("*").alias("of_path"))
        total = found.agg(F.count("*").alias("of_all"))
        found = found.join(counts, "path").crossJoin(F.broadcast(total))
        is_rare = F.col("of_path") * 100 < F.col("of_all") * RARE_PERCENT
        reasons.append(F.when(is_rare, F.lit(UNEXPECTED)))
    for topic in criteria.through:
        found = found.where(F.array_contains("path", topic))
    listed = F.array_compact(F.array(*reasons)) if reasons else F.array().cast("array<string>")
    found = found.withColumn("reasons", listed)
    if criteria.needs_reason:
        found = found.where(F.size("reasons") > 0)
    return found.select(*journeys.columns, "reasons").orderBy("key")
