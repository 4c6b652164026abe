"""Stretches of the brokers' logs that archive runs have counted."""

from __future__ import annotations

import datetime

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.log_stretches import (
    mark_counted_runs,
    to_counted_stretches,
    with_kept_bodies,
    within_stretches,
)

_OLD, _DAY = datetime.date(2026, 11, 19), datetime.date(2026, 11, 20)


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


def test_bodies_expire_by_the_date_of_their_pack_or_message(spark: SparkSession) -> None:
    rows = [
        (("store_date=2026-11-19/p",), _DAY, False),
        (("store_date=2026-11-20/p",), _OLD, True),
        (("store_date=__HIVE_DEFAULT_PARTITION__/p",), _OLD, False),
        (("store_date=__HIVE_DEFAULT_PARTITION__/p",), _DAY, True),
        (("store_date=__HIVE_DEFAULT_PARTITION__/p",), None, False),
        (None, _OLD, True),  # has no body
    ]
    messages = spark.createDataFrame(rows, "body_ref struct<pack: string>, store_date date, is_kept boolean")
    assert_df_equality(with_kept_bodies(messages, _DAY), messages.where("is_kept"))
