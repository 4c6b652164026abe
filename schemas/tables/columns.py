"""Construction of table columns with comments."""

from __future__ import annotations

from pyspark.sql.types import DataType, StructField


def column(name: str, data_type: DataType, comment: str) -> StructField:
    """Return a nullable column with a comment."""
    return StructField(name, data_type, nullable=True, metadata={"comment": comment})
