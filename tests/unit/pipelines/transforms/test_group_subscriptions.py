"""A group has the subscriptions that were last known."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from commitlake.pipelines.transforms.group_subscriptions import subscriptions_at, with_subscription
from tests.support.offset_rows import MOMENTS


def test_subscriptions_are_the_last_ones_that_are_known(spark: SparkSession) -> None:
    member = "array<struct<client_id: string>>"
    rows = [
        ("broker-a", 50, "broker", None, None, None, None, None, None),
        ("broker-a", 50, "broker", "mail", "orders", "TAG", " paid\t|| || open", "CLUSTERING", [("c",)]),
        ("broker-a", 90, "broker", "mail", "orders", None, None, None, None),
        ("broker-a", 90, "broker", "shop", "orders", "SQL92", "a > 1", "BROADCASTING", []),
        ("broker-a", 90, "file", "other", "orders", "SQL92", "a >", None, None),
    ]
    columns = "broker string, us long, source string, group string, topic string, expression_type string"
    frame = spark.createDataFrame(rows, f"{columns}, expression string, message_model string, members {member}")
    known = subscriptions_at(
        frame.withColumn("as_of", F.timestamp_micros("us")), MOMENTS, max_age_us=20, sql92_expressions=["a > 1"]
    )
    wanted = [("broker-a", group, topic, at) for at in (60, 120) for group, topic in (
        ("mail", "orders"), ("shop", "orders"), ("other", "orders"), ("none", "orders"), ("mail", "%RETRY%mail"),
    )]  # fmt: skip
    asked = spark.createDataFrame(wanted, "broker string, group string, topic string, at long")
    found = with_subscription(asked, known).drop("broker", "topic").collect()
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, [
        ("mail", 60, " paid\t|| || open", ["paid", "open"], None, 1, "CLUSTERING"),
        ("mail", 120, " paid\t|| || open", ["paid", "open"], None, None, None),
        ("shop", 60, "sql: a > 1", None, "a > 1", None, None),  # known only later
        ("shop", 120, "sql: a > 1", None, "a > 1", None, "BROADCASTING"),
        ("other", 60, None, None, None, None, None),
        ("other", 120, None, None, None, None, None),
        ("none", 60, None, None, None, 0, None),
        ("none", 120, None, None, None, None, None),
        ("mail", 60, "*", None, None, 0, None),
        ("mail", 120, "*", None, None, None, None),
    ]))  # fmt: skip
