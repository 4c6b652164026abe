"""Columns get their declared types, order and comments."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.columns import to_columns
from commitlake.schemas.tables.columns import INT64, TEXT, Column, Columns, MapOf


def test_columns_are_those_declared(spark: SparkSession) -> None:
    columns = Columns([Column("id", INT64, "a number"), Column("a.b", TEXT), Column("map", MapOf(TEXT, TEXT))])
    given = spark.createDataFrame([(7, "x", "y")], "id int not null, `a.b` string, other string")
    expected = spark.createDataFrame([(7, "x", None)], "id long not null, `a.b` string, map map<string, string>")
    found = to_columns(given, columns)
    assert_df_equality(found, expected, ignore_metadata=True)
    assert found.schema["id"].metadata == {"comment": "a number"}
