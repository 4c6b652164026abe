"""Messages are counted by windows, and rates are for the seconds that were asked for."""

from __future__ import annotations

import datetime

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.rates import compute_rates, count_by_window
from commitlake.schemas.tables.rates import RATE_COUNTS
from commitlake.schemas.times import EPOCH


def test_windows_are_counted(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("orders", 7), ("orders", 59), (None, 60)], "topic string, second long")
    found = count_by_window(
        rows,
        {"topic": "topic"},
        "timestamp_seconds(second - second % 60)",
        {"messages": "count(*)", "none": "sum(CAST(NULL AS LONG))"},
    )
    expected = spark.createDataFrame(
        [("orders", EPOCH, 2, 0), (None, EPOCH + datetime.timedelta(minutes=1), 1, 0)],
        "topic string, window_start timestamp, messages long not null, none long not null",
    )
    assert_df_equality(found, expected, ignore_row_order=True)


def test_rates_are_for_the_seconds_that_were_asked_for(spark: SparkSession) -> None:
    others = dict.fromkeys(RATE_COUNTS.drop_columns("messages").names, 0)
    columns = ", ".join(f"{name} long not null" for name in RATE_COUNTS.names)
    five = datetime.timedelta(minutes=5)
    counts = [("orders", EPOCH, 30), ("orders", EPOCH + five, 600)], [("orders", EPOCH, 30)]
    parts = [
        spark.createDataFrame(
            [(*row, *others.values()) for row in rows], f"topic string, window_start timestamp, {columns}"
        )
        for rows in counts
    ]
    found = compute_rates(parts, ["topic"], 300_000_000, 60_000_000, 600_000_000)
    expected = spark.createDataFrame(
        [
            ("orders", EPOCH, 60, *others.values(), 240.0, 0.25, 0.0),
            ("orders", EPOCH + five, 600, *others.values(), 300.0, 2.0, 0.0),
        ],
        f"topic string, window_start timestamp, {columns}, seconds double, messages_per_s double, bytes_per_s double",
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_metadata=True)
    assert found.schema["seconds"].metadata == {"comment": "length of the part of the window that was asked for"}
