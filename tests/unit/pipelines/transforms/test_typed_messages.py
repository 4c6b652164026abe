"""Tests of judged messages as typed rows and as misfits; the integration tests have what Spark alone can parse."""

from __future__ import annotations

import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import MapType, StringType, StructField, StructType

from commitlake.pipelines.transforms.typed_messages import misfit_rows, parse_documents, typed_rows
from commitlake.schemas.tables.columns import DOUBLE, INT64, TEXT, Column, Columns, ListOf
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema
from commitlake.schemas.tables.topics import PLACE, TOPIC_MISFITS

COLUMNS = Columns(
    [
        Column("id", INT64),
        Column("price.net", DOUBLE),
        Column("tags", ListOf(TEXT, has_nulls=True)),
        Column("shop", Columns([Column("name", TEXT)])),
    ]
)
AT = datetime.datetime(2026, 11, 20, 14, tzinfo=datetime.UTC)
NAMES = [*(name.removeprefix("_") for name in PLACE.names), "born_host"]
TEXTS = StructType([StructField(name, StringType()) for name in ("reason", "field", "expected", "found")])


def judged(spark: SparkSession, *rows: tuple[Any, Any, Any]) -> DataFrame:
    """Return messages at the offsets from 0 on, with their document, misfit and unknown fields."""
    unknown = MapType(StringType(), StringType(), valueContainsNull=False)
    added = [StructField("document", StringType()), StructField("misfit", TEXTS), StructField("unknown", unknown)]
    schema = StructType([*spark_schema(MESSAGES.select_columns(NAMES)).fields, *added])
    place = ("orders", 1, 7, AT, AT, ["order-1"], "paid", "10.0.0.1:5")
    return spark.createDataFrame([("broker-a", number, *place, *row) for number, row in enumerate(rows)], schema)


def test_documents_become_columns(spark: SparkSession) -> None:
    text = '{"id":4711,"price.net":1.5,"tags":["a",null],"shop":{"name":"é"}}'
    rows = judged(spark, (text, None, {"new": "1"}), ("{}", None, None))
    found = typed_rows(parse_documents(rows, COLUMNS), COLUMNS, {"id": "order_id"}, 3)
    assert found.columns == ["order_id", *COLUMNS.names[1:], *PLACE.names, "_unknown", "_schema"]
    first, second = sorted(found.collect(), key=lambda row: row["_physical_offset"])
    assert (first["order_id"], first["price.net"], first["tags"], first["shop"]["name"]) == (
        4711,
        1.5,
        ["a", None],
        "é",
    )
    assert (first["_broker"], first["_physical_offset"], first["_keys"]) == ("broker-a", 0, ["order-1"])
    assert (first["_unknown"], first["_schema"]) == ({"new": "1"}, 3)
    assert second["order_id"] is None
    assert second["shop"] is None


def test_misfits_have_their_reason(spark: SparkSession) -> None:
    fault = ("wrong_type", "id", "integer", "a list")
    rows = judged(spark, (None, fault, None), ('{"id":1}', None, None))
    parsed = parse_documents(rows, COLUMNS)
    found = misfit_rows(parsed, "sold", 2)
    assert found.columns == TOPIC_MISFITS.names
    (row,) = found.collect()
    assert (row["topic_table"], row["topic"], row["broker"], row["physical_offset"]) == (
        "sold",
        "orders",
        "broker-a",
        0,
    )
    assert (row["reason"], row["field"], row["expected"], row["found"], row["schema"]) == (*fault, 2)
    assert typed_rows(parsed, COLUMNS, {}, 2).count() == 1
