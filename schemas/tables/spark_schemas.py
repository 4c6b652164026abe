"""Conversion of declared table columns to Spark schemas."""

from __future__ import annotations

import json

from pyspark.sql.types import StructField, StructType

from commitlake.schemas.tables.columns import Column, Columns


def spark_schema(columns: Columns) -> StructType:
    """Return columns as Spark's schema, with their comments."""
    return StructType.fromJson(json.loads(columns.to_json()))


def spark_field(column: Column) -> StructField:
    """Return one column as a field of Spark's schema."""
    return spark_schema(Columns([column])).fields[0]
