"""Subscriptions of consumer groups at given moments, from the snapshots of `subscriptions`.

The rules are those of `pipelines.lag.subscriptions`: a group keeps the last subscription that is known. Before the
first one, that one counts. Clients are known only where a live broker was asked not long ago.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.moments import AT, SampleTimes, latest_values_at
from commitlake.schemas.layouts.rocketmq.topics import RETRY_PREFIX
from commitlake.schemas.remoting.heartbeats import ALL_TAGS, SQL92_EXPRESSION, TAG_EXPRESSION

KEY = ("broker", "group", "topic")
"""Columns that tell subscriptions apart."""
FILTER = ("filter", "tags", "sql92")
"""Columns that say which messages a group wants, see `_with_filter_columns`."""
BROADCASTING = "BROADCASTING"
_MANY_TAGS = r"\|\|"
_BLANKS = r"^[\x00-\x20]+|[\x00-\x20]+$"


class Subscriptions(NamedTuple):
    """Subscriptions of consumer groups at each of several moments, as DataFrames.

    Attributes:
        known: one row for each key and moment that has a subscription: `KEY`, `at`, `FILTER`, `clients` (their number
            when the broker was last asked; null if it never was) and `model` (null if not known).
        first: one row for each key: `KEY`, and the `FILTER` that is known first, which counts before.
        asked: one row for each store and moment that has an answer of the live broker: `broker`, `at`, `is_recent`.
    """

    known: DataFrame
    first: DataFrame
    asked: DataFrame


def subscriptions_at(
    subscriptions: DataFrame, moments: SampleTimes, *, max_age_us: int, sql92_expressions: Collection[str] = ()
) -> Subscriptions:
    """Return what each group subscribed to at each moment.

    Args:
        subscriptions: rows of `subscriptions`.
        moments: the moments.
        max_age_us: age up to which clients count as known.
        sql92_expressions: the valid SQL92 expressions; others are not evaluated, and every message may be wanted.
    """
    time = F.unix_micros("as_of")
    marks = subscriptions.where(F.col("topic").isNull() & (F.col("source") == "broker"))
    asked = latest_values_at(marks, ["broker"], time, moments, {"asked_at": F.max(time)})
    is_recent = (F.col("asked_at") >= F.col(AT) - F.lit(max_age_us)).alias("is_recent")
    rows = subscriptions.where(F.col("topic").isNotNull() & F.col("group").isNotNull())
    choice = F.struct("expression_type", "expression")
    newest = F.struct(F.size("members").alias("clients"), F.col("message_model").alias("model"))
    is_choice = F.col("expression").isNotNull()
    values = {
        "choice": F.max_by(choice, F.when(is_choice, time)),
        "newest": F.max_by(newest, F.when(F.col("source") == "broker", time)),
    }
    known = _with_filter_columns(
        latest_values_at(rows, KEY, time, moments, values).where(F.col("choice").isNotNull()), sql92_expressions
    )
    first = rows.where(is_choice).groupBy(*KEY).agg(F.min_by(choice, time).alias("choice"))
    clients = F.when(F.col("newest").isNotNull(), F.greatest("newest.clients", F.lit(0))).alias("clients")
    return Subscriptions(
        known.select(*KEY, AT, *FILTER, clients, F.col("newest.model").alias("model")),
        _with_filter_columns(first, sql92_expressions).select(*KEY, *FILTER),
        asked.select("broker", AT, is_recent),
    )


def _with_filter_columns(rows: DataFrame, sql92_expressions: Collection[str]) -> DataFrame:
    """Add columns with the parsed filter of each subscription: its tags, or its SQL92 expression.

    Returns:
        `rows` with `filter` (its text; null if it is not known or not valid, so that every message may be wanted),
        `tags` (array of the wanted tags; null for all) and `sql92_expressions` (the expression; null for none).
    """
    kind, text = F.col("choice.expression_type"), F.col("choice.expression")
    is_tags = kind == TAG_EXPRESSION
    is_sql = (kind == SQL92_EXPRESSION) & text.isin(*sql92_expressions) if sql92_expressions else F.lit(False)
    parts = F.transform(F.split(text, _MANY_TAGS), lambda tag: F.regexp_replace(tag, _BLANKS, ""))
    tags = F.filter(parts, lambda tag: tag != "")
    return rows.withColumns(
        {
            "filter": F.when(is_tags, text).when(is_sql, F.concat(F.lit("sql: "), text)),
            "tags": F.when(is_tags & ~text.isin("", ALL_TAGS), tags),
            "sql92": F.when(is_sql, text),
        }
    )


def with_subscription(rows: DataFrame, subscriptions: Subscriptions) -> DataFrame:
    """Add to each row the filter and the clients of the group's subscription to the topic.

    A retry topic holds only messages of its group, so that all of them are wanted.

    Args:
        rows: has `KEY` and `at`.
        subscriptions: the subscriptions at the same moments.

    Returns:
        `rows` with `FILTER` (`filter` is null where it is not known), `members` (int, null if not known) and `model`.
    """
    known = subscriptions.known.withColumn("is_known", F.lit(True))
    first = subscriptions.first.withColumn("is_later", F.lit(True))
    first = first.withColumnsRenamed({name: f"first_{name}" for name in FILTER})
    found = rows.join(known, [*KEY, AT], "left").join(first, [*KEY], "left")
    found = found.join(subscriptions.asked, ["broker", AT], "left")
    is_retry = F.col("topic").startswith(RETRY_PREFIX)
    everything = {"filter": F.lit(ALL_TAGS), "tags": F.lit(None), "sql92": F.lit(None)}
    filters = {
        name: F.when(is_retry, everything[name]).when(F.col("is_known"), F.col(name)).otherwise(F.col(f"first_{name}"))
        for name in FILTER
    }
    is_only_later = F.col("is_known").isNull() & F.col("is_later")
    members = F.when(F.col("is_recent") & ~F.coalesce(is_only_later, F.lit(False)), F.coalesce("clients", F.lit(0)))
    answer = found.withColumns({**filters, "members": members.cast("int")})
    return answer.select(*rows.columns, *FILTER, "members", "model")


def with_unknown_subscription(rows: DataFrame) -> DataFrame:
    """Add columns for the filter and the clients of a subscription as unknown, for a lake without subscriptions."""
    is_retry = F.col("topic").startswith(RETRY_PREFIX)
    none = {"tags": "array<string>", "sql92": "string", "members": "int", "model": "string"}
    columns = {name: F.lit(None).cast(kind) for name, kind in none.items()}
    return rows.withColumns({"filter": F.when(is_retry, F.lit(ALL_TAGS)), **columns})
