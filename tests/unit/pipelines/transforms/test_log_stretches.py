"""Stretches of the brokers' logs that archive runs have counted."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.log_stretches import mark_counted_runs, to_counted_stretches, within_stretches


def test_runs_without_a_profile_divide_stretches(spark: SparkSession) -> None:
    runs = spark.createDataFrame([("r1", 1), ("r2", 2), ("r3", 3)], "run_id string, sequence long")
    profiles = spark.createDataFrame(
        [
            ("r0", "a", 0, 90),  # its row in archive_runs has expired
            ("r1", "a", 100, 190),
            ("r1", "a", 150, 290),
            ("r1", "b", 0, 10),
            ("r3", "a", 500, 590),
        ],
        "run_id string, broker string, first_physical_offset long, last_physical_offset long",
    )
    marked = mark_counted_runs(runs, profiles)
    expected = spark.createDataFrame(
        [("r0", None, True), ("r1", 1, True), ("r2", 2, False), ("r3", 3, True)],
        "run_id string, sequence long, has_profile boolean",
    )
    assert_df_equality(marked, expected, ignore_row_order=True, ignore_nullable=True)
    stretches = spark.createDataFrame(
        [("a", 0, 291), ("b", 0, 11), ("a", 500, 591)], "broker string, first long, last long"
    )
    assert_df_equality(to_counted_stretches(marked, profiles), stretches, ignore_row_order=True, ignore_nullable=True)


def test_messages_in_a_stretch_of_their_broker_are_kept(spark: SparkSession) -> None:
    columns = "broker string, physical_offset long, topic string"
    messages = spark.createDataFrame(
        [("a", 9, "t"), ("a", 10, "t"), ("a", 19, "t"), ("a", 20, "t"), ("b", 10, "t")], columns
    )
    stretches = spark.createDataFrame([("a", 10, 20)], "broker string, first long, last long")
    expected = spark.createDataFrame([("a", 10, "t"), ("a", 19, "t")], columns)
    assert_df_equality(within_stretches(messages, stretches), expected, ignore_row_order=True, ignore_nullable=True)
