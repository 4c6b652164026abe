"""Journeys and hops as DataFrames of Spark: pure functions of DataFrames, without session, path, clock or action.

Spark finds the records of each key, and sorts them by key. Python workers compute journeys of them as without Spark,
from Arrow batches, some keys at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.sql import Engine
from commitlake.connectors.worker_errors import forward_worker_errors
from commitlake.pipelines.journeys.arrow_journeys import (
    HOP_COUNTS,
    count_hops,
    hops_table,
    journeys_table,
    sorted_key_rows,
    sum_hop_counts,
)
from commitlake.pipelines.journeys.journeys_query import JourneysQuestion
from commitlake.pipelines.journeys.key_records import KEY_HASH, KeySlice, slices_of_sorted_batches
from commitlake.pipelines.journeys.misfits import (
    BETWEEN,
    RARE_PERCENT,
    UNEXPECTED,
    MisfitRules,
    missing_topic_reason,
    stuck_topic_reason,
)
from commitlake.pipelines.journeys.sql_statements import JourneyStatements, SourceTables
from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.journeys import HOPS, JOURNEYS
from commitlake.schemas.tables.spark_schemas import spark_schema

_Compute = Callable[[KeySlice, JourneysQuestion], Iterable[pa.Table]]
_SOURCES = SourceTables("{messages}", "{edges}")
_WITHOUT_STEPS = JOURNEYS.drop_columns("steps")
JOURNEYS_AND_HOP_COUNTS = Columns([*_WITHOUT_STEPS, *HOP_COUNTS])
_BATCH_ROWS = 10_000
_NEAR_SHARE = 8
"""The window is short if it is at most one of so many parts of the time that is read.

Then its keys are found first, and records of others are not sorted. Otherwise this would take longer than it saves: it
reads `messages` twice, and sends all records to other tasks once more.
"""


def journeys_of(messages: DataFrame, edges: DataFrame, question: JourneysQuestion) -> DataFrame:
    """Return, for each business key with a record in a time window, its path over topics and its outcome.

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
        and `visible_at` are null in some rows.
    """
    return _compute_by_key(messages, edges, question, question.end_us, _journey_tables, JOURNEYS)


def hops_of(messages: DataFrame, edges: DataFrame, question: JourneysQuestion, window_us: int | None) -> DataFrame:
    """Return how often, and how fast, business keys go from one topic to the next one, by time window.

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
    count = partial(_hop_count_tables, window_us=window_us)
    return sum_hops(_compute_by_key(messages, edges, question, question.until_us, count, HOP_COUNTS))


def journeys_and_hop_counts_of(messages: DataFrame, edges: DataFrame, question: JourneysQuestion) -> DataFrame:
    """Return the journey of each key, and counts of hops between topics, as rows of one DataFrame.

    Hops are counted over the whole time range.

    Args:
        messages: as for `journeys_of`.
        edges: rows of `edges`.
        question: the question.

    Returns:
        Rows of `JOURNEYS` without `steps`, and rows of `HOP_COUNTS`, in which `key` is null; other columns of a row are
        null.
    """
    return _compute_by_key(messages, edges, question, question.end_us, _answer_tables, JOURNEYS_AND_HOP_COUNTS)


def sum_hops(counts: DataFrame) -> DataFrame:
    """Return the number and delay of hops between topics in each time window, summed up from rows of `HOP_COUNTS`."""
    return to_columns(
        counts.select(*HOP_COUNTS.names)
        .repartition("hour_us", "source", "target")
        .mapInArrow(_hop_batches, spark_schema(HOPS)),
        HOPS,
    )


def _compute_by_key(
    messages: DataFrame, edges: DataFrame, question: JourneysQuestion, end_us: int, compute: _Compute, columns: Columns
) -> DataFrame:
    """Return the rows that `compute` makes from the records of keys; Python workers call it for some keys at a time.

    Args:
        messages: rows of `messages`.
        edges: rows of `edges`.
        question: the question.
        end_us: time up to which records are read.
        compute: function that returns tables for a slice of records; it is called by name.
        columns: columns of these tables.
    """
    is_short = (question.until_us - question.since_us) * _NEAR_SHARE <= question.end_us - question.begin_us
    statements = JourneyStatements(question, Engine.SPARK, _SOURCES)
    sql = statements.records_sql(question.begin_us, end_us, only_window_keys=is_short)
    records = messages.sparkSession.sql(sql, messages=messages, edges=edges)
    # Sorted by a number, and not by the key itself, because Spark sorts rows by numbers several times as fast.
    hashed = records.withColumn(KEY_HASH, F.xxhash64("key")).repartition(KEY_HASH).sortWithinPartitions(KEY_HASH)
    computed = hashed.mapInArrow(partial(_slice_batches, question, compute), spark_schema(columns))
    return to_columns(computed, columns)


def _slice_batches(
    question: JourneysQuestion, compute: _Compute, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    with forward_worker_errors():
        for each in slices_of_sorted_batches(batches):
            for table in compute(each, question):
                yield from table.to_batches(max_chunksize=_BATCH_ROWS)


def _journey_tables(key_slice: KeySlice, question: JourneysQuestion) -> Iterator[pa.Table]:
    yield journeys_table(sorted_key_rows(key_slice, question), question)


def _hop_count_tables(key_slice: KeySlice, question: JourneysQuestion, window_us: int | None) -> Iterator[pa.Table]:
    yield count_hops(sorted_key_rows(key_slice, question), question, window_us)


def _answer_tables(key_slice: KeySlice, question: JourneysQuestion) -> Iterator[pa.Table]:
    rows = sorted_key_rows(key_slice, question)
    for table in (journeys_table(rows, question, _WITHOUT_STEPS), count_hops(rows, question, None)):
        nulls = pa.Table.from_pylist([], arrow_schema(JOURNEYS_AND_HOP_COUNTS))
        yield pa.concat_tables([nulls, table], promote_options="default")


def _hop_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with forward_worker_errors():
        counts = [pa.Table.from_batches([batch]) for batch in batches]
        if counts:
            yield from hops_table(sum_hop_counts(counts)).to_batches(max_chunksize=_BATCH_ROWS)


def paths_of(journeys: DataFrame) -> DataFrame:
    """Count the keys on each path over topics, with the path as a list of topics, most frequent first."""
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
    """Return `path` and `key` of the first `limit` keys that took each of the given paths."""
    wanted = F.array_join("path", BETWEEN).isin([BETWEEN.join(path) for path in paths])
    number = F.row_number().over(Window.partitionBy("path").orderBy("key"))
    chosen = journeys.where("NOT began_before").where(wanted).select("path", "key", number.alias("number"))
    return chosen.where(F.col("number") <= limit).select("path", "key").orderBy("key")


def misfits_of(journeys: DataFrame, criteria: MisfitRules) -> DataFrame:
    """Return the journeys of the keys that meet `criteria`, in the order of keys, with the reasons why."""
    found = journeys.where("NOT began_before")
    reasons = [
        F.when(~F.array_contains("path", topic) & ~F.col("is_cut"), F.lit(missing_topic_reason(topic)))
        for topic in criteria.missing
    ]
    for topic, length in criteria.stuck:
        is_old = F.col("last_sent_at") <= F.lit(criteria.known_until - length)
        reasons.append(F.when((F.col("last_topic") == F.lit(topic)) & is_old, F.lit(stuck_topic_reason(topic))))
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


def batches_of(frame: DataFrame) -> Iterator[pa.RecordBatch]:
    """Run the Spark query of a DataFrame, and yield its rows in order, as Arrow batches.

    Only one partition at a time is in this process.
    """
    for row in frame.mapInArrow(_stream_batches, "stream binary").toLocalIterator():
        with pa.ipc.open_stream(row["stream"]) as reader:
            yield from reader


def _stream_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each Arrow batch as a row whose column `stream` has the batch in Arrow's stream format."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["stream"])
