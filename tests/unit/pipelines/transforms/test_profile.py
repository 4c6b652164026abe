"""Profiles of messages: made, combined and compared; `tests.integration.spark.test_profile` has more rows."""

from __future__ import annotations

import datetime

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.profile import (
    column_hash,
    combine_profiles,
    compare_profiles,
    count_windows,
    to_profile,
)
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.profile import AUDIT, COLUMN_CHECKSUMS, OPTIONAL_CHECKSUMS
from commitlake.schemas.tables.spark import spark_field, spark_schema

_NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
_COLUMNS = (
    "broker string, topic string, queue_id int, queue_offset long, physical_offset long, size int, body_size int, "
    "body_crc int, store_timestamp timestamp"
)
ROW, LAKE, FORMAT, *_ = COLUMN_CHECKSUMS


def messages(spark: SparkSession, *seconds: int, size: int | None = 200) -> DataFrame:
    """Return messages of one queue, stored at these seconds after noon."""
    rows = [
        ("a", "orders", 0, number, 200 * number, size, 50, 7, _NOON + datetime.timedelta(seconds=second))
        for number, second in enumerate(seconds)
    ]
    return spark.createDataFrame(rows, _COLUMNS)


def test_messages_are_counted_by_windows_of_ten_minutes(spark: SparkSession) -> None:
    profile = to_profile(messages(spark, 0, 599, 600))
    assert [field.simpleString() for field in profile.schema] == [field.simpleString() for field in spark_schema(AUDIT)]
    expected = spark.createDataFrame(
        [(_NOON, 2, 400, 100, 0, 1), (_NOON + datetime.timedelta(minutes=10), 1, 200, 50, 2, 2)],
        "window_start timestamp, messages long, bytes long, body_bytes long, first_queue_offset long, "
        "last_queue_offset long",
    )
    assert_df_equality(
        profile.select(*expected.columns),
        expected,
        ignore_row_order=True,
        ignore_nullable=True,
        ignore_metadata=True,
    )
    assert to_profile(messages(spark, 0, size=None)).isEmpty()  # bad ranges


def test_combined_parts_equal_the_profile_of_all(spark: SparkSession) -> None:
    rows = messages(spark, 0, 1, 600, 601)
    parts = [to_profile(rows.where(condition)) for condition in ("queue_offset % 2 = 0", "queue_offset % 2 = 1")]
    assert_df_equality(
        combine_profiles(parts[0].unionByName(parts[1])),
        to_profile(rows),
        ignore_row_order=True,
        ignore_nullable=True,
        ignore_metadata=True,
    )


def test_windows_that_differ_are_listed(spark: SparkSession) -> None:
    profile = to_profile(messages(spark, 0, 600, 1200))
    minutes = F.col("window_start").cast("long") % 3600 / 60
    found = profile.where(minutes != 0).withColumn("bytes", F.when(minutes == 10, 201).otherwise(F.col("bytes")))
    expected = spark.createDataFrame(
        [("missing", 200, None), ("different", 200, 201)],
        "difference string, expected_bytes long, found_bytes long",
    )
    differences = compare_profiles(profile, found, columns=["bytes"]).select(*expected.columns)
    assert_df_equality(differences, expected, ignore_nullable=True, ignore_metadata=True)
    assert compare_profiles(profile, combine_profiles(profile.drop(*OPTIONAL_CHECKSUMS))).isEmpty()


def test_windows_and_messages_are_counted(spark: SparkSession) -> None:
    expected = spark.createDataFrame([(0, 0)], "windows long, messages long")
    none = to_profile(messages(spark, 0, size=None))
    assert_df_equality(count_windows(none), expected, ignore_nullable=True)


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
