"""Changes the messages of a replay by a function over a DataFrame, on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.spark_reader import arrow_batches, table_name
from commitlake.pipelines.replay.errors import ReplayError
from commitlake.pipelines.replay.message_changes import Transform
from commitlake.schemas.tables.replays import TRANSFORMED
from commitlake.schemas.tables.spark_schemas import spark_schema


def transformed_rows(spark: SparkSession, lake: Lake, replay_id: str, transform: Transform) -> Iterator[pa.RecordBatch]:
    """Apply a user's function to all messages of a replay in `replay_rows`, and return its rows.

    Raises:
        ReplayError: if it fails, or does not return messages.
    """
    table = spark.sql(f"SELECT * FROM {table_name(lake.uri('replay_rows'))} WHERE NOT is_changed")
    rows = table.where(table.replay_id == replay_id).select(TRANSFORMED.names)
    return arrow_batches(apply_transform(transform, rows))


def apply_transform(transform: Transform, rows: DataFrame) -> DataFrame:
    """Apply the user's function to messages, and check that the result has the columns of messages.

    Raises:
        ReplayError: if it fails, or does not return messages.
    """
    try:
        changed = transform(rows)
    except (
        Exception,
        SystemExit,
    ) as error:  # a user's function may raise anything; sys.exit would end the command with code 0
        raise ReplayError(f"--transform: the function failed: {type(error).__name__}: {error}") from error
    if not isinstance(changed, DataFrame):
        raise ReplayError(f"--transform: expected a DataFrame from the function, found {type(changed).__name__}")
    _check_transformed_schema(changed.schema)
    return changed.select(TRANSFORMED.names)


def _check_transformed_schema(schema: StructType) -> None:
    """Raise an error if the user's function returned other columns than those of a message to send.

    Raises:
        ReplayError: if columns are missing, unknown or of another type.
    """
    wanted = {field.name: field.dataType.simpleString() for field in spark_schema(TRANSFORMED)}
    found = {field.name: field.dataType.simpleString() for field in schema}
    for name, kind in wanted.items():
        if found.get(name) != kind:
            raise ReplayError(f"--transform: column {name}: expected {kind}, found {found.get(name, 'no such column')}")
    unknown = sorted(set(found) - set(wanted))
    if unknown:
        raise ReplayError(f"--transform: the function returned unknown columns: {', '.join(unknown)}. Drop them")
