"""The columns of a declared table."""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from commitlake.schemas.tables.columns import Column, Columns
from commitlake.schemas.tables.spark_schemas import spark_field


def to_columns(frame: DataFrame, columns: Columns) -> DataFrame:
    """Return the rows with exactly the given columns, in their order and with their types and comments.

    Lakes of earlier versions lack some columns, which are null then. Further columns are left out:

        +------+-----+        columns: id long, name string
        |    id|other|        +----+----+
        +------+-----+   ->   |  id|name|
        |     7|    x|        +----+----+
        +------+-----+        |   7|null|
                              +----+----+

    Args:
        frame: any of the columns, with types that can be cast to those declared, and others.
        columns: the declared columns.

    Returns:
        One row for each row of `frame`. A column is nullable if it was, or was missing.
    """
    there = set(frame.columns)
    return frame.select(*(_typed_column(column, exists=column.name in there) for column in columns))


def _typed_column(column: Column, *, exists: bool) -> SparkColumn:
    field = spark_field(column)
    value = F.col(f"`{column.name}`") if exists else F.lit(None)
    return value.cast(field.dataType).alias(column.name, metadata=field.metadata)
