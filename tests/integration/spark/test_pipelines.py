"""What the archive makes of the source's rows, on tables of a few rows."""

from __future__ import annotations

import datetime
from typing import Any

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pipelines.archive import has_message, is_refused, to_quarantine
from schemas.tables.messages import SOURCE
from schemas.tables.quarantine import QUARANTINE

Row = dict[str, Any]
WITHOUT_BODY = StructType([field for field in SOURCE if field.name != "body"])
NOON = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
NOTE = {
    "segment": "/store/commitlog/00000000000000000000",
    "start": 400,
    "end": 700,
    "reason": "body_crc",
    "expected": "1",
    "found": "2",
    "first_bytes": b"\0\1",
}


def message(offset: int, **changes: object) -> Row:
    """A row of the source with a message."""
    row: Row = {field.name: None for field in WITHOUT_BODY}
    row |= {"broker": "a", "physical_offset": offset, "size": 100, "topic": "orders", "queue_id": 0, "queue_offset": 0}
    row |= {"keys": ["k"], "properties": {"b": "1", "a": "2"}, "store_timestamp": NOON}
    return row | changes


def bad_range(offset: int) -> Row:
    """A row of the source without one."""
    row: Row = {field.name: None for field in WITHOUT_BODY}
    return row | {"broker": "a", "physical_offset": offset, "_corrupt_record": NOTE}


def source_of(spark: SparkSession, *rows: Row) -> DataFrame:
    """A table as the source gives it, in one partition."""
    return spark.createDataFrame(
        [tuple(row[name] for name in WITHOUT_BODY.names) for row in rows], WITHOUT_BODY
    ).coalesce(1)


def table_of(spark: SparkSession, schema: StructType, *rows: Row) -> DataFrame:
    """A table of this schema; what a row does not say is null."""
    return spark.createDataFrame([tuple(row.get(name) for name in schema.names) for row in rows], schema)


def test_quarantine_has_bad_ranges_and_marked_messages(spark: SparkSession) -> None:
    marked = message(400, _corrupt_record={**NOTE, "reason": "timestamp"})
    found = to_quarantine(source_of(spark, message(0), bad_range(200), marked), sequence=7, parser_version="0.1")
    row = {
        "broker": "a",
        "segment": NOTE["segment"],
        "start_offset": 400,
        "end_offset": 700,
        "reason": "body_crc",
        "expected": "1",
        "found": "2",
        "first_bytes": b"\0\1",
        "parser_version": "0.1",
        "sequence": 7,
    }
    expected = table_of(spark, QUARANTINE, row, {**row, "reason": "timestamp"})
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)
    assert found.dtypes == expected.dtypes


def test_an_intact_log_has_no_quarantine(spark: SparkSession) -> None:
    assert to_quarantine(source_of(spark, message(0)), sequence=1, parser_version="0").isEmpty()


def test_every_row_is_a_message_or_refused_or_both(spark: SparkSession) -> None:
    source = source_of(spark, message(0), bad_range(200), message(400, _corrupt_record=NOTE))
    found = source.select(has_message().alias("message"), is_refused().alias("refused")).collect()
    assert [tuple(row) for row in found] == [(True, False), (False, True), (True, True)]
