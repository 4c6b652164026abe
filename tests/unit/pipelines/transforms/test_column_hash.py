"""Hashes of columns. `tests.integration.spark.test_profile` compares them with those that tasks compute."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.column_hash import column_hash
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.profile import COLUMN_CHECKSUMS
from commitlake.schemas.tables.spark import spark_field, spark_schema

ROW, LAKE, FORMAT, *_ = COLUMN_CHECKSUMS


def empty_message(spark: SparkSession, **changes: str) -> DataFrame:
    """Return a row of nulls, but for the changes."""
    row = spark.createDataFrame([(None,) * len(MESSAGES.names)], spark_schema(MESSAGES))
    return row.withColumns(
        {name: F.lit(value).cast(spark_field(MESSAGES[name]).dataType) for name, value in changes.items()}
    )


def test_a_hash_depends_only_on_its_columns(spark: SparkSession) -> None:
    plain, tagged, dated = (
        empty_message(spark),
        empty_message(spark, tags="t"),
        empty_message(spark, store_date="2026-11-20"),
    )
    by_row = [frame.select(column_hash(frame.schema, ROW).alias("hash")) for frame in (plain, tagged, dated)]
    by_lake = [frame.select(column_hash(frame.schema, LAKE).alias("hash")) for frame in (plain, tagged, dated)]
    assert_df_equality(by_row[0], by_row[2])
    assert_df_equality(by_lake[0], by_lake[1])
    assert by_row[0].first() != by_row[1].first()
    assert by_lake[0].first() != by_lake[2].first()


def test_rows_without_a_column_have_no_hash(spark: SparkSession) -> None:
    rows = empty_message(spark).drop("tags", "body_ref")
    hashes = rows.select(column_hash(rows.schema, ROW).alias("row"), column_hash(rows.schema, LAKE).alias("lake"))
    assert_df_equality(hashes, spark.createDataFrame([(None, None)], "row long, lake long"))


def test_a_row_without_a_format_has_no_format_hash(spark: SparkSession) -> None:
    earlier, known = empty_message(spark), empty_message(spark, format="jmq")
    assert earlier.select(column_hash(earlier.schema, FORMAT)).first() == (None,)
    assert known.select(column_hash(known.schema, FORMAT)).first() != (None,)
