"""Lag at whole minutes is that of the last row of the hour, with longer waiting times."""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from commitlake.pipelines.transforms.moments import SampleTimes
from commitlake.pipelines.transforms.stored_lag import stored_lag_at
from commitlake.schemas.tables.lag import QUEUE_LAG
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.times import EPOCH

MINUTE_US = 60_000_000
COLUMNS = (
    "broker string, kind string, `group` string, topic string, queue_id int, broadcasts boolean, minute timestamp, "
    "within_hour boolean, messages_min long, messages_max long, time_lag_s_min double, time_lag_s_max double, "
    "next_message_time timestamp, verdict string"
)


def minute_rows(spark: SparkSession) -> DataFrame:
    """Return rows of two groups in one queue: `mail` waits from minute 1 on, and is gone from minute 5 on."""
    rows = [
        row(0, "mail", 0, 0, 0.0, 0.0),
        row(0, "shop", 0, None, 0.0, None),
        row(1, "mail", 1, 2, 1.25, 5.5, EPOCH),
        row(5, "mail", None, None, None, None, verdict=None),
        row(60, "shop", 0, 3, 0.0, 61.0, EPOCH),
    ]
    return spark.createDataFrame(rows, COLUMNS)


def row(minute: int, group: str, *figures: Any, verdict: str | None = "ok") -> tuple[Any, ...]:
    """Return a row of a group: messages at least and at most, likewise seconds, and the time of the next message."""
    time = EPOCH + datetime.timedelta(minutes=minute)
    next_time = figures[4] if len(figures) > 4 else None
    return ("b", "group", group, "orders", 0, False, time, minute % 60 != 0, *figures[:4], next_time, verdict)


def lag_by_minute(found: DataFrame) -> list[tuple[Any, ...]]:
    """Return minute, group, messages and seconds of each row."""
    names = ("group", "messages_min", "messages_max", "time_lag_s_min", "time_lag_s_max")
    rows = found.selectExpr("unix_micros(as_of) AS us", *(f"`{name}`" for name in names)).collect()
    return sorted(((each["us"] // MINUTE_US, *(each[name] for name in names)) for each in rows), key=repr)


def test_a_row_holds_until_the_next_one_or_the_end_of_its_hour(spark: SparkSession) -> None:
    found = stored_lag_at(minute_rows(spark), SampleTimes(0, 2 * MINUTE_US, 33))
    assert [field.name for field in found.schema] == [field.name for field in spark_schema(QUEUE_LAG)]
    rows = lag_by_minute(found)
    assert [each for each in rows if each[1] == "mail"] == [
        (0, "mail", 0, 0, 0.0, 0.0),
        (2, "mail", 1, 2, 61.25, 65.5),
        (4, "mail", 1, 2, 181.25, 185.5),
    ]
    shop = sorted(each for each in rows if each[1] == "shop")
    assert shop[:30] == [(minute, "shop", 0, None, 0.0, None) for minute in range(0, 60, 2)]
    assert shop[30:] == [
        (60, "shop", 0, 3, 0.0, 61.0),
        (62, "shop", 0, 3, 0.0, 181.0),
        (64, "shop", 0, 3, 0.0, 301.0),
    ]


def test_whole_hours_have_rows_of_their_own(spark: SparkSession) -> None:
    hours = stored_lag_at(minute_rows(spark), SampleTimes(0, 60 * MINUTE_US, 2))
    assert lag_by_minute(hours) == [
        (0, "mail", 0, 0, 0.0, 0.0),
        (0, "shop", 0, None, 0.0, None),
        (60, "shop", 0, 3, 0.0, 61.0),
    ]
    assert lag_by_minute(stored_lag_at(minute_rows(spark), SampleTimes(0, count=0))) == []
