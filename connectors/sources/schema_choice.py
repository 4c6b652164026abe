"""Choice of a read's columns: all columns of the table, or the ones that the user names."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.types import StructType

from commitlake.connectors.reading.options import Mode
from commitlake.schemas.errors import UsageError
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.spark_schemas import spark_schema


def choose_columns(table: Columns, columns: Sequence[str] | None, mode: Mode, corrupt_column: str) -> StructType:
    """Return the columns that the options select.

    Args:
        columns: names in the option `columns`; None if it is not given.
        mode: PERMISSIVE adds the column for bad ranges, unless the option excludes it.
        corrupt_column: name of that column.

    Raises:
        UsageError: if a name is not a column of the table.
    """
    if columns is None:
        return spark_schema(table if mode is Mode.PERMISSIVE else table.drop_columns(corrupt_column))
    for name in columns:
        if name not in table.names:
            raise UsageError(f"option columns: expected some of {', '.join(table.names)}, found {name!r}")
    return spark_schema(table.select_columns(columns))


def check_columns(schema: StructType, table: Columns, mode: Mode, corrupt_column: str) -> None:
    """Check that a schema, which a user may have given, only has columns of a table.

    Args:
        schema: columns of the read.
        mode: PERMISSIVE needs the column for bad ranges.
        corrupt_column: name of that column.

    Raises:
        UsageError: if a column is unknown, has another type, or is missing for the mode.
    """
    known = {field.name: field.dataType for field in spark_schema(table)}
    for field in schema:
        if field.name not in known:
            raise UsageError(
                f"the schema has a column {field.name!r}, which this source does not have: expected some of "
                f"{', '.join(known)}"
            )
        # Compared as text, because a schema written as text cannot declare lists without nulls.
        if field.dataType.simpleString() != known[field.name].simpleString():
            expected = known[field.name].simpleString()
            raise UsageError(
                f"the schema's column {field.name}: expected the type {expected}, found {field.dataType.simpleString()}"
            )
    if mode is Mode.PERMISSIVE and corrupt_column not in schema.fieldNames():
        raise UsageError(
            f"mode PERMISSIVE needs the column {corrupt_column} in the schema: add it, or choose mode DROPMALFORMED"
        )
