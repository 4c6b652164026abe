"""A group's offset at a moment is between those of two snapshots."""

from __future__ import annotations

import datetime

from chispa import assert_df_equality
from pyspark.sql import SparkSession

from commitlake.pipelines.transforms.group_offsets import (
    drop_impossible_offsets,
    offsets_at,
    snapshots_at,
    store_topics_at,
)
from commitlake.pipelines.transforms.moments import SampleTimes
from commitlake.schemas.times import EPOCH
from tests.support.offset_rows import MOMENTS, offset_rows


def test_offsets_are_between_those_of_two_snapshots(spark: SparkSession) -> None:
    offsets = offset_rows(
        spark,
        (50, 700, 0), (120, 900, 100),
        (50, "mail", 0, 3), (120, "mail", 0, 8),  # moves on
        (50, "mail", 1, 3), (120, "mail", 1, 1),  # is set back
        (50, "shop", 0, 4),  # does not move
        (120, "late@broadcast", 0, 4),  # is new
        (50, "gone", 0, 4), (120, "gone", 0, None),
    )  # fmt: skip
    snapshots = snapshots_at(offsets, MOMENTS)
    columns = "broker string, at long, taken long, next long, log_end long, log_start long, next_log_end long"
    expected = spark.createDataFrame(
        [("broker-a", 60, 50, 120, 700, 0, 900), ("broker-a", 120, 120, None, 900, 100, None)], columns
    )
    assert_df_equality(snapshots, expected, ignore_row_order=True, ignore_nullable=True)
    found = offsets_at(offsets, snapshots, MOMENTS).select("owner", "group", "queue_id", "at", "low", "high")
    expected = spark.createDataFrame(
        [
            ("mail", "mail", 0, 60, 3, 8),
            ("mail", "mail", 0, 120, 8, 8),
            ("mail", "mail", 1, 60, 0, None),
            ("mail", "mail", 1, 120, 1, 1),
            ("shop", "shop", 0, 60, 4, 4),
            ("shop", "shop", 0, 120, 4, 4),
            ("late@broadcast", "late", 0, 60, 0, None),
            ("late@broadcast", "late", 0, 120, 4, 4),
            ("gone", "gone", 0, 60, 0, None),
        ],
        "owner string, group string, queue_id int, at long, low long not null, high long",
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    assert not found.schema["low"].nullable
    after = SampleTimes(200)
    last = offsets_at(offsets, snapshots_at(offsets, after), after).where("owner = 'mail' AND queue_id = 0")
    assert [(row["low"], row["high"]) for row in last.collect()] == [(8, None)]


def test_many_offsets_in_queues_that_do_not_exist_are_left_out(spark: SparkSession) -> None:
    value = '{"readQueueNums": 1, "writeQueueNums": 2, "attributes": {"queue.type": "BatchCQ"}}'
    config = spark.createDataFrame(
        [("broker-a", EPOCH + datetime.timedelta(days=1), "topic", "orders", value)],
        "broker string, recorded_at timestamp, kind string, name string, value string",
    )
    topics = store_topics_at(config, MOMENTS)
    assert sorted(tuple(row) for row in topics.collect()) == [
        ("broker-a", "orders", 60, 2, True), ("broker-a", "orders", 120, 2, True),
    ]  # fmt: skip
    offsets = offset_rows(spark, (50, 700, 0), *((50, "mail", queue, 3) for queue in range(5)))
    positions = offsets_at(offsets, snapshots_at(offsets, SampleTimes(60)), SampleTimes(60))
    for most, left in ((3, 5), (2, 2)):
        assert drop_impossible_offsets(positions, topics, most).count() == left
