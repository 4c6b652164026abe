"""Lag of consumer groups as DataFrames, from the tables of a lake at one version."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from commitlake.connectors.lake.archive_commits import StoreProgress
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.spark.worker_check import choose_python
from commitlake.pipelines.analysis.lag_arguments import LagHistoryQuestion, LagQuestion
from commitlake.pipelines.lag.store_lag import MAX_IMPOSSIBLE
from commitlake.pipelines.lag.subscription_filter import SubscriptionFilter
from commitlake.pipelines.lag.subscriptions import MAX_AGE
from commitlake.pipelines.lag_minutes.coverage import CoveredMinutes
from commitlake.pipelines.lag_minutes.minute_computation import MINUTE_US
from commitlake.pipelines.transforms.lag import LagRules, LagTables, lag_at, lag_of_groups
from commitlake.pipelines.transforms.moments import SampleTimes
from commitlake.pipelines.transforms.stored_lag import stored_lag_at
from commitlake.schemas.remoting.heartbeats import SQL92_EXPRESSION
from commitlake.schemas.selection import Selection
from commitlake.schemas.times import EPOCH, epoch_us

_MICROSECOND = datetime.timedelta(microseconds=1)


class PinnedTables(NamedTuple):
    """The tables from which lag is computed, each at one Delta version.

    Attributes:
        offsets: `consumer_offsets`.
        messages: `messages`.
        subscriptions: `subscriptions`; None if the lake has none.
        store_config: `store_config`; None if the lake has none.
        progress: how far each store was archived at that version of `messages`.
    """

    offsets: DataFrame
    messages: DataFrame
    subscriptions: DataFrame | None
    store_config: DataFrame | None
    progress: Mapping[str, StoreProgress]


class StoredMinutes(NamedTuple):
    """Minutes of which `lag_minutes` has the lag.

    Attributes:
        rows: `lag_minutes`, at one Delta version.
        brokers: the stores of the question.
        covered: the minutes, by store; without stores of which it has none.
    """

    rows: DataFrame
    brokers: Sequence[str]
    covered: Mapping[str, CoveredMinutes]


def lag_frame(
    spark: SparkSession, pinned_tables: PinnedTables, question: LagQuestion, stored: StoredMinutes | None = None
) -> DataFrame:
    """Return the lag of the consumer groups of a lake, at one time or at the end of each time window.

    The times of snapshots, the starts of logs and the SQL92 expressions are read at once, the rest when the DataFrame
    is used.

    Args:
        spark: the session.
        pinned_tables: the tables from which lag is computed.
        question: the question.
        stored: for a history, minutes whose lag is read and not computed; None for none.
    """
    moments = _lag_moments(pinned_tables.offsets, question)
    if stored is None:
        found = _measured_lag(spark, pinned_tables, question.selection, moments)
    else:
        found = _stored_and_measured_lag(spark, pinned_tables, question.selection, moments, stored)
    return found if question.by == "queue" else lag_of_groups(found, [] if moments.is_last else ["as_of"])


def _stored_and_measured_lag(
    spark: SparkSession, pinned_tables: PinnedTables, selection: Selection, moments: SampleTimes, stored: StoredMinutes
) -> DataFrame:
    """Return the lag of each group and queue, read where `lag_minutes` has it, and computed elsewhere."""
    rows, covered = stored.rows.where(F.col("broker").isin(*stored.covered)), stored.covered
    for name, values in (("group", selection.groups), ("topic", selection.topics)):
        rows = rows.where(F.col(name).isin(*values)) if values else rows
    is_stored = partial(_is_covered, covered)
    whole = _whole_minutes(moments)
    parts = [stored_lag_at(rows, whole).where(is_stored(F.unix_micros("as_of")))]
    others = [broker for broker in stored.brokers if broker not in covered]
    if whole != moments:  # each moment is computed, and left out where it is a stored minute
        ranges = [(stored.brokers, moments)]
    else:
        first, last = (max(each.first for each in covered.values()), min(each.last for each in covered.values()))
        before, after = _moments_outside(moments, first * MINUTE_US, last * MINUTE_US)
        ranges = [(others, moments), (list(covered), before), (list(covered), after)]
    for brokers, outside in ranges:
        if brokers and outside.count > 0:
            measured = _measured_lag(spark, pinned_tables, replace(selection, brokers=brokers), outside)
            parts.append(measured.where(~is_stored(F.unix_micros("as_of"))))
    return reduce(DataFrame.unionByName, parts)


def _is_covered(covered_minutes: Mapping[str, CoveredMinutes], time: Column) -> Column:
    """Return a condition that a time, microseconds since 1970, is a minute that `lag_minutes` has of the store."""
    conditions = [
        (F.col("broker") == broker) & time.between(minutes.first * MINUTE_US, minutes.last * MINUTE_US)
        for broker, minutes in covered_minutes.items()
    ]
    return (F.pmod(time, F.lit(MINUTE_US)) == 0) & reduce(or_, conditions)


def _whole_minutes(moments: SampleTimes) -> SampleTimes:
    """Return those of the moments that are whole minutes."""
    first, every = moments.first_us, moments.every_us
    assert isinstance(first, int)
    step = math.lcm(every, MINUTE_US)
    skipped = next((number for number in range(step // every) if (first + number * every) % MINUTE_US == 0), None)
    if skipped is None:
        return replace(moments, count=0)
    return SampleTimes(first + skipped * every, step, max(0, -(-(moments.count - skipped) * every // step)))


def _moments_outside(moments: SampleTimes, first_us: int, last_us: int) -> tuple[SampleTimes, SampleTimes]:
    """Return the moments before a time, and those after a later time; all of them as the former if none is between."""
    assert isinstance(moments.first_us, int)
    until = min(max(-(-(first_us - moments.first_us) // moments.every_us), 0), moments.count)
    since = min(max((last_us - moments.first_us) // moments.every_us + 1, 0), moments.count)
    if until >= since:
        return moments, replace(moments, count=0)
    rest = replace(moments, first_us=moments.first_us + since * moments.every_us, count=moments.count - since)
    return replace(moments, count=until), rest


def _measured_lag(
    spark: SparkSession, pinned_tables: PinnedTables, selection: Selection, moments: SampleTimes
) -> DataFrame:
    """Return the lag of each group and queue at each of the moments, computed from snapshots and messages."""
    expressions = _sql92_expressions(pinned_tables.subscriptions)
    if expressions:
        choose_python(spark)
    rules = LagRules(
        brokers=selection.brokers,
        groups=selection.groups,
        topics=selection.topics,
        log_starts=find_log_starts(pinned_tables.offsets, moments),
        max_age_us=MAX_AGE // _MICROSECOND,
        max_impossible=MAX_IMPOSSIBLE,
        sql92=expressions,
        match_sql92=match_sql92 if expressions else None,
    )
    progress = [
        (broker, known.end, None if known.pulled_topics is None else list(known.pulled_topics))
        for broker, known in pinned_tables.progress.items()
    ]
    tables = LagTables(
        offsets=pinned_tables.offsets,
        messages=pinned_tables.messages,
        progress=spark.createDataFrame(progress, "broker string, end long, topics array<string>"),
        subscriptions=pinned_tables.subscriptions,
        store_config=pinned_tables.store_config,
    )
    return lag_at(tables, moments, rules)


def _lag_moments(offsets: DataFrame, question: LagQuestion) -> SampleTimes:
    if question.at is not None:
        return SampleTimes(epoch_us(question.at))
    if not isinstance(question, LagHistoryQuestion):
        return SampleTimes(_last_snapshot_times_us(offsets, question.selection.brokers), is_last=True)
    last_us = None
    if question.until is None:
        last_us = max(_last_snapshot_times_us(offsets, question.selection.brokers).values(), default=None)
    ends = question.window_ends(None if last_us is None else EPOCH + last_us * _MICROSECOND)
    return SampleTimes(epoch_us(ends.first), ends.window // _MICROSECOND, ends.windows)


def _last_snapshot_times_us(offsets: DataFrame, brokers: Sequence[str]) -> dict[str, int]:
    """Return the time of the last snapshot of each store, microseconds since 1970."""
    marks = _snapshot_rows(offsets)
    if brokers:
        marks = marks.where(F.col("broker").isin(*brokers))
    last = F.max(F.unix_micros("as_of")).alias("last")
    return {row["broker"]: row["last"] for row in marks.groupBy("broker").agg(last).collect()}


def _snapshot_rows(offsets: DataFrame) -> DataFrame:
    """Return the header rows of snapshots in `consumer_offsets`, one for each store and time."""
    return offsets.where((F.col("kind") == "group") & F.col("topic").isNull() & F.col("broker").isNotNull())


def find_log_starts(offsets: DataFrame, moments: SampleTimes) -> dict[str, int]:
    """Return the smallest physical offset at which each store's log began at any of the `moments`, where known."""
    if moments.last_us is None:
        return {}
    time = F.unix_micros("as_of")
    marks = _snapshot_rows(offsets)
    before = time <= moments.first_moment_from(F.lit(0))  # of a store's first moment, the snapshot that holds
    marks = marks.where(time <= F.lit(moments.last_us)).withColumn("is_before", before)
    first = F.max_by(F.struct("log_start"), F.when(F.col("is_before"), time)).alias("first")
    later = ~F.coalesce("is_before", F.lit(False))
    rows = marks.groupBy("broker").agg(
        first,
        F.min(F.when(later, F.col("log_start"))).alias("least"),
        F.count_if(later & F.col("log_start").isNull()).alias("unknown"),
    )
    first_start = F.col("first.log_start")
    is_known = (F.col("unknown") == 0) & (F.col("first").isNull() | first_start.isNotNull())
    found = rows.where(is_known).select("broker", F.least("least", first_start).alias("start"))
    return {row["broker"]: row["start"] for row in found.collect() if row["start"] is not None}


def _sql92_expressions(subscriptions: DataFrame | None) -> list[str]:
    """Return those SQL92 expressions in subscriptions that are valid."""
    if subscriptions is None:
        return []
    is_sql92 = (F.col("expression_type") == SQL92_EXPRESSION) & F.col("expression").isNotNull()
    rows = subscriptions.where(is_sql92).select("expression").distinct().collect()
    found = sorted(row["expression"] for row in rows)
    return [each for each in found if SubscriptionFilter.of(SQL92_EXPRESSION, each).is_known]


def match_sql92(rows: DataFrame) -> DataFrame:
    """Add the column `matches`, true where a row's `properties` match its SQL92 expression.

    Executors need CommitLake.
    """

    def match(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.append_column("matches", pa.array(_match_expressions(batch)))

    schema = StructType([*rows.schema.fields, StructField("matches", BooleanType())])
    return rows.mapInArrow(match, schema)


def _match_expressions(batch: pa.RecordBatch) -> Array:
    expressions = batch.column("sql92").dictionary_encode()
    codes = expressions.indices.to_numpy(zero_copy_only=False)
    found = np.zeros(batch.num_rows, bool)
    for code, expression in enumerate(expressions.dictionary.to_pylist()):
        here = np.flatnonzero(codes == code)
        found[here] = SubscriptionFilter(SQL92_EXPRESSION, expression).select_rows(batch.take(pa.array(here)))
    return found
