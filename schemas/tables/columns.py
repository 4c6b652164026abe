"""The form of a table's columns."""

from __future__ import annotations

from pyspark.sql.types import DataType, StructField


def column(name: str, data_type: DataType, comment: str) -> StructField:
    """Return a column that may be null, with a comment for whoever reads the table's schema."""
    return StructField(name, data_type, nullable=True, metadata={"comment": comment})
