"""SQL queries to a lake by Spark, for results too large for one process; they arrive as Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import and_, ge, le, lt, or_
from pathlib import Path

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession, functions

from commitlake.connectors.lake.reader import QueryError
from commitlake.connectors.lake.sql import date_literal
from commitlake.connectors.spark.classic_session import EXECUTION_ERRORS
from commitlake.connectors.spark.plan_check import find_refusal_reason
from commitlake.connectors.storage.s3_options import spark_uri
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.layouts.rocketmq.message_id import parse_id_offset
from commitlake.schemas.selection import Selection, replace_invalid_utf8
from commitlake.schemas.times import epoch_us

# Spark's messages end with a SQLSTATE; class 22 means errors in data, such as a division by zero.
_DATA_EXCEPTION = re.compile(r"^Caused by: [\w.$]+: (.* SQLSTATE: 22\w{3})", re.MULTILINE)
# Spark's error for a data file that is damaged or missing, with the file's name.
_UNREADABLE_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)

_SUBSTITUTE = "spark.sql.variable.substitute"


def table_name(uri: str) -> str:
    """Return the name by which Spark's SQL reads the Delta table at a URI."""
    return "delta.`" + _absolute_uri(uri).replace("`", "``") + "`"


def _absolute_uri(uri: str) -> str:
    return spark_uri(uri) if is_uri(uri) else str(Path(uri).absolute())


def run_spark_sql(spark: SparkSession, sql: str, allowed_tables: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
    """Run a SQL query, and yield its result partition by partition, in order.

    Args:
        sql: the query.
        allowed_tables: paths or URIs of the Delta tables that it may read; empty for any.

    Raises:
        QueryError: if the engine cannot parse or execute it.
    """
    yield from run_spark_select(spark, sql, {}, allowed_tables=allowed_tables)[1]


def run_spark_select(
    spark: SparkSession, sql: str, tables: Mapping[str, str], limit: int = 0, *, allowed_tables: Collection[str] = ()
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Run a SELECT, and return its column names and its batches, partition by partition, in order.

    Workers return whole Arrow batches as bytes. Rows would be Python objects, with times in this process's time zone.

    Args:
        spark: the session; its views are not changed.
        sql: a query. With tables, it becomes a subquery, where no other statement is possible.
        tables: paths or URIs of Delta tables, by their names in the SELECT.
        limit: maximum number of rows; 0 for no limit.
        allowed_tables: further tables, as for `run_spark_sql`.

    Raises:
        QueryError: if the engine cannot parse or execute it; each batch can still raise the same.
    """
    if tables:
        named = ", ".join(f"{name} AS (SELECT * FROM {table_name(uri)})" for name, uri in tables.items())
        # The parenthesis is on a line of its own, because the query may end with a comment.
        sql = f"WITH {named} SELECT * FROM (\n{sql}\n)"
    if limit:
        sql += f" LIMIT {limit}"
    with _convert_spark_errors(), _disable_sql_substitution(spark):
        # Spark only analyses the query here. Nothing of it runs before its plan is known to read the allowed tables
        # only.
        answer = spark.sql(sql)
        refusal = find_refusal_reason(answer, [_absolute_uri(uri) for uri in (*tables.values(), *allowed_tables)])
        if refusal is not None:
            raise QueryError(refusal)
        columns = answer.columns
        batches = arrow_batches(answer)
    return columns, batches


def arrow_batches(answer: DataFrame) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a DataFrame as Arrow batches, one partition at a time, in order.

    Raises:
        QueryError: if the engine cannot answer because of the data; each batch can still raise the same.
    """

    def to_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], ["ipc"])

    def read_batches(parts: DataFrame) -> Iterator[pa.RecordBatch]:
        with _convert_spark_errors():
            for row in parts.toLocalIterator(prefetchPartitions=True):
                yield from pa.ipc.open_stream(row.ipc)

    return read_batches(answer.mapInArrow(to_bytes, "ipc binary"))


@contextmanager
def _disable_sql_substitution(spark: SparkSession) -> Iterator[None]:
    """Turn off Spark's replacement of `${...}` in SQL inside the block."""
    before = spark.conf.get(_SUBSTITUTE)
    spark.conf.set(_SUBSTITUTE, "false")
    try:
        yield
    finally:
        spark.conf.set(_SUBSTITUTE, str(before))


@contextmanager
def _convert_spark_errors() -> Iterator[None]:
    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise QueryError(str(error).strip().splitlines()[0].rstrip(";")) from None
    except EXECUTION_ERRORS as error:
        about_data = _DATA_EXCEPTION.search(str(error)) or _UNREADABLE_FILE.search(str(error))
        if about_data is None:
            raise
        raise QueryError(about_data[1]) from None


def selection_condition(
    selection: Selection, *, has_dates: bool = True, time_column: str = "store_timestamp"
) -> Column:
    """Return the conditions on messages as a filter for a DataFrame with the columns of `messages`.

    Texts are values of the condition, and no SQL, which settings of a session may change: Spark replaces `${…}` in it,
    and may keep backslashes.

    Args:
        selection: the selection.
        has_dates: as for `commitlake.connectors.lake.sql.selection_conditions`.
        time_column: name of the column of store times.
    """
    parts = [column_in_values(column, values) for column, values in selection.column_values]
    if selection.keys:
        parts.append(functions.arrays_overlap("keys", functions.array(*map(_literal, selection.keys))))
    if selection.ids:
        parts.append(reduce(or_, (_id_condition(message_id) for message_id in selection.ids)))
    column = functions.col("born_timestamp" if selection.is_by_birth else time_column)
    has_dates = has_dates and not selection.is_by_birth
    for moment, compare in ((selection.start, ge), (selection.end, lt)):
        if moment is not None:
            parts.append(compare(column, functions.timestamp_micros(functions.lit(epoch_us(moment)))))
            if has_dates:
                # The end is exclusive, but its date is not: earlier messages of that day belong to the range.
                compare_dates = ge if compare is ge else le
                parts.append(compare_dates(functions.col("store_date"), functions.expr(date_literal(moment))))
    if selection.where:
        parts.append(functions.expr(f"({selection.where}\n)"))
    return reduce(and_, parts, functions.lit(True))


def column_in_values(column: str, values: Iterable[str | int]) -> Column:
    """Return the condition that a column has one of the given values, which are texts, such as `3` or `2026-11-20`."""
    return functions.col(column).isin(*map(_literal, values))


def _literal(value: str | int) -> Column:
    return functions.lit(replace_invalid_utf8(value) if isinstance(value, str) else value)


def _id_condition(message_id: str) -> Column:
    has_unique_key = functions.col("unique_key") == _literal(message_id)
    offset = parse_id_offset(message_id)
    if offset < 0:
        return has_unique_key
    has_offset = functions.col("physical_offset") == offset
    return (has_offset & (functions.col("msg_id") == message_id.upper())) | has_unique_key
