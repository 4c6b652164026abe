"""The latest row before a moment holds at the moment."""

from __future__ import annotations

from chispa import assert_df_equality
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.moments import SampleTimes, latest_values_at
from tests.support.offset_rows import MOMENTS


def test_the_latest_rows_hold_at_each_moment(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("b", "mail", 7, 1), ("b", "mail", 59, 2), ("b", "shop", 61, 5), ("b", "late", 121, 9)],
        "broker string, group string, second long, offset long",
    )
    values = {"offset": F.max_by("offset", "second")}
    found = latest_values_at(rows, ["broker", "group"], F.col("second"), MOMENTS, values).drop("broker")
    expected = [("mail", 60, 2), ("mail", 120, 2), ("shop", 120, 5)]
    columns = "group string, at long, offset long"
    assert_df_equality(found, spark.createDataFrame(expected, columns), ignore_row_order=True, ignore_nullable=True)
    last = latest_values_at(rows, ["broker", "group"], F.col("second"), SampleTimes({"b": 60}, is_last=True), values)
    assert sorted(tuple(row) for row in last.collect()) == [
        ("b", "late", 60, 9),
        ("b", "mail", 60, 2),
        ("b", "shop", 60, 5),
    ]
