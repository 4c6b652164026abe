"""Rows of `consumer_offsets` with times of some microseconds, for transforms."""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from commitlake.pipelines.transforms.moments import SampleTimes
from commitlake.schemas.times import EPOCH

MOMENTS = SampleTimes(60, 60, 2)
"""The moments 60 and 120, in microseconds."""


def offset_rows(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """Return rows of `consumer_offsets`, of groups or of snapshots: a time in microseconds, and their values."""
    made = []
    for us, *values in rows:
        as_of = EPOCH + datetime.timedelta(microseconds=us)
        if len(values) == 3:
            group, queue, offset = values
            made.append(("broker-a", as_of, "group", group, "orders", queue, offset, None, None))
        else:
            made.append(("broker-a", as_of, "group", None, None, None, None, *values))
    columns = "broker string, as_of timestamp, kind string, `group` string, topic string, queue_id int, `offset` long"
    return spark.createDataFrame(made, f"{columns}, log_end long, log_start long")
