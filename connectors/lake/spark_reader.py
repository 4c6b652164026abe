"""Questions to a lake by Spark: for results that outgrow one process. They arrive batch by batch, as Arrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
)
from pyspark.sql import SparkSession

from connectors.lake.reader import QueryError

# What a predicate can be to blame for; anything else is a failure of ours or of the cluster.
_REFUSALS = (
    AnalysisException,
    ArithmeticException,
    ArrayIndexOutOfBoundsException,
    DateTimeException,
    IllegalArgumentException,
    NumberFormatException,
    ParseException,
)


def table_name(uri: str) -> str:
    """What a Delta table is called in Spark's SQL."""
    path = uri if "://" in uri else str(Path(uri).absolute())
    return "delta.`" + path.replace("`", "``") + "`"


def run_spark_sql(spark: SparkSession, sql: str) -> Iterator[pa.RecordBatch]:
    """The answer to a SQL question, one partition at a time, in order.

    Rows would come as Python objects, a time in the zone of this process; so workers hand over whole batches, as bytes.

    Raises:
        QueryError: if the engine cannot understand or answer it.
    """

    def to_bytes(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue()], pa.binary())], ["ipc"])

    with _refusals():
        parts = spark.sql(sql).mapInArrow(to_bytes, "ipc binary")
        for row in parts.toLocalIterator(prefetchPartitions=True):
            yield from pa.ipc.open_stream(row.ipc)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except _REFUSALS as error:
        raise QueryError(str(error).strip().splitlines()[0]) from None
