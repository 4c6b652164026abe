"""The keys of messages as rows, and tables of keys compared."""

from __future__ import annotations

import datetime
import zlib

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from commitlake.pipelines.transforms.message_keys import compare_keys, to_message_keys, to_totals
from commitlake.schemas.tables.messages import MESSAGE_KEYS
from commitlake.schemas.tables.spark import spark_schema

_NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
_MESSAGES = (
    "broker string, physical_offset long, topic string, store_timestamp timestamp, keys array<string>, "
    "unique_key string"
)


def keys(spark: SparkSession, *rows: tuple[str, str, int]) -> DataFrame:
    """Return a table of keys, with key, kind and physical offset."""
    values = [(zlib.crc32(key.encode()), key, kind, "a", offset, "orders", _NOON) for key, kind, offset in rows]
    return spark.createDataFrame(values, spark_schema(MESSAGE_KEYS))


def test_each_key_of_a_message_is_one_row(spark: SparkSession) -> None:
    messages = spark.createDataFrame(
        [
            ("a", 0, "orders", _NOON, ["x", "y", "x"], "U0"),  # a key that it has twice
            ("a", 200, "orders", _NOON, ["U0"], None),  # a key that is another one's client id
            ("a", 400, "orders", _NOON, [], None),
            ("a", 600, "orders", _NOON, None, None),
        ],
        _MESSAGES,
    )
    expected = keys(spark, ("x", "key", 0), ("y", "key", 0), ("U0", "unique_key", 0), ("U0", "key", 200))
    assert_df_equality(
        to_message_keys(messages), expected, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True
    )


def test_totals_do_not_depend_on_the_order_of_rows(spark: SparkSession) -> None:
    once = keys(spark, ("x", "key", 0), ("y", "key", 0))
    again = keys(spark, ("y", "key", 0), ("x", "key", 0))
    assert_df_equality(to_totals(once), to_totals(again))
    (row,) = to_totals(keys(spark, ("x", "key", 0), ("z", "key", 0))).collect()
    assert row != to_totals(once).first()


def test_rows_that_one_table_has_more_often_are_differences(spark: SparkSession) -> None:
    expected = keys(spark, ("x", "key", 0), ("y", "key", 0), ("z", "key", 0))
    found = keys(spark, ("y", "key", 0), ("z", "key", 0), ("z", "key", 0), ("z", "unique_key", 0))
    differences = compare_keys(expected, found).select("key", "kind", "difference")
    told = spark.createDataFrame(
        [("x", "key", "missing"), ("z", "key", "unexpected"), ("z", "unique_key", "unexpected")],
        "key string, kind string, difference string",
    )
    assert_df_equality(differences, told, ignore_row_order=True, ignore_nullable=True, ignore_metadata=True)
