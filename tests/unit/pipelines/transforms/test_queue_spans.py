"""Queues begin and end at their last topic's messages that the broker has."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.queue_spans import queue_spans_at, with_queue_runs
from tests.support.offset_rows import MOMENTS


def test_queues_end_at_the_last_message_of_their_last_topic(spark: SparkSession) -> None:
    rows = [  # topic, queue, physical offset, queue offset, microsecond
        ("orders", 0, 0, 0, 1), ("orders", 0, 100, 1, 2), ("orders", 0, 200, 2, 3), ("orders", 0, 300, 3, 70),
        ("again", 0, 400, 0, 4), ("again", 0, 500, 1, 5), ("again", 0, 600, 0, 100),
        ("again", 1, 450, 0, 4),  # has no message since the topic was created again
        ("old", 0, 10, 7, 2),  # the broker has deleted its only message
    ]  # fmt: skip
    columns = "topic string, queue_id int, physical_offset long, queue_offset long, us long"
    messages = spark.createDataFrame(rows, columns).select("*", F.lit("b").alias("broker"))
    runs = with_queue_runs(messages.withColumn("store_timestamp", F.timestamp_micros("us")), MOMENTS)
    again = runs.where("topic = 'again' AND queue_id = 0").orderBy("physical_offset")
    assert [(row["run"], row["seen_at"]) for row in again.collect()] == [(0, 60), (0, 60), (1, 120)]
    snapshots = spark.createDataFrame(
        [("b", 60, 50, 120, 900, 100, 900), ("b", 120, 120, None, 900, 250, None)],
        "broker string, at long, taken long, next long, log_end long, log_start long, next_log_end long",
    )
    found = queue_spans_at(runs, snapshots, MOMENTS).select("topic", "queue_id", "at", "first", "end")
    assert sorted(tuple(row) for row in found.collect()) == [
        ("again", 0, 60, 0, 2),
        ("again", 0, 120, 0, 1),
        ("again", 1, 60, 0, 1),
        ("again", 1, 120, 0, 0),
        ("old", 0, 60, 8, 8),
        ("old", 0, 120, 8, 8),
        ("orders", 0, 60, 1, 3),
        ("orders", 0, 120, 3, 4),
    ]
