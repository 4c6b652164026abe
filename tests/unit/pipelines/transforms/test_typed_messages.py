"""Tests of judged messages as typed rows and as misfits; the integration tests have what Spark alone can parse."""

from __future__ import annotations

import datetime
import doctest
import json
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import MapType, StringType, StructField, StructType

from commitlake.pipelines.transforms import typed_messages
from commitlake.pipelines.transforms.typed_messages import (
    change_columns,
    change_document,
    change_rows,
    current_columns,
    misfit_rows,
    newest_states,
    parse_documents,
    row_states,
    typed_rows,
)
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


ORDERS = Columns([Column("id", INT64), Column("name", TEXT)])


def test_examples_are_correct(spark: SparkSession) -> None:
    result = doctest.testmod(typed_messages, extraglobs={"spark": spark})
    assert (result.attempted > 0, result.failed) == (True, 0)


def changes(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Return rows of a table of changes of orders."""
    return spark.createDataFrame([*rows], spark_schema(change_columns(ORDERS)))


def states(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Return states of orders."""
    return spark.createDataFrame([*rows], spark_schema(current_columns(ORDERS)))


def test_changes_of_messages_are_rows(spark: SparkSession) -> None:
    first: dict[str, Any] = {
        "_op": "update", "_source_database": "shop", "_order": [5, 6], "_primary_key": ["id"],
        "_unknown": {"new": "1"},
    }  # fmt: skip
    document = {
        "changes": [{**first, "before": {"id": 1, "name": "a"}, "after": {"id": 2}}, {"_op": "ddl", "_sql": "x"}]
    }
    fault = ("wrong_type", "id", "integer", "a list")
    rows = judged(spark, (json.dumps(document), None, None), (None, fault, None))
    found = change_rows(parse_documents(rows, change_document(ORDERS)), ORDERS, {"name": "title"}, 3)
    titled = Columns([Column("id", INT64), Column("title", TEXT)])
    place = {
        "_broker": "broker-a", "_physical_offset": 0, "_topic": "orders", "_queue_id": 1, "_queue_offset": 7,
        "_store_timestamp": AT, "_born_timestamp": AT, "_keys": ["order-1"], "_tags": "paid", "_schema": 3,
    }  # fmt: skip
    expected = [
        {**first, **place, "_row": 0, "id": 2, "_before_id": 1, "_before_title": "a"},
        {**place, "_op": "ddl", "_sql": "x", "_row": 1},
    ]
    wanted = spark.createDataFrame(expected, spark_schema(change_columns(titled)))
    assert_df_equality(found, wanted, ignore_nullable=True, ignore_metadata=True)


def test_states_of_rows_after_each_change(spark: SparkSession) -> None:
    found = row_states(
        changes(
            spark,
            {"_op": "insert", "id": 1, "name": "a", "_order": [1]},
            {"_op": "snapshot", "id": 2, "name": "b", "_order": [2]},
            {"_op": "update", "_before_id": 1, "_before_name": "a", "id": 1, "name": "c", "_order": [3]},
            {"_op": "update", "_before_id": 1, "_before_name": "c", "id": 3, "name": "c", "_order": [4]},
            {"_op": "update", "id": 2, "name": "d", "_order": [5]},  # the source did not send the row before
            {"_op": "delete", "_before_id": 2, "_before_name": "d", "_order": [6]},
            *({"_op": op, "_order": [7]} for op in ("truncate", "ddl", "control")),
        ),
        ORDERS,
        ["id"],
    )
    expected = states(
        spark,
        {"id": 1, "name": "a", "_order": [1], "_deleted": False},
        {"id": 2, "name": "b", "_order": [2], "_deleted": False},
        {"id": 1, "name": "c", "_order": [3], "_deleted": False},
        {"id": 1, "name": None, "_order": [4], "_deleted": True},
        {"id": 3, "name": "c", "_order": [4], "_deleted": False},
        {"id": 2, "name": "d", "_order": [5], "_deleted": False},
        {"id": 2, "name": None, "_order": [6], "_deleted": True},
    )
    assert_df_equality(found, expected, ignore_nullable=True, ignore_metadata=True)


def test_a_change_of_a_part_of_the_key_is_one_of_the_key(spark: SparkSession) -> None:
    change = {"_op": "update", "_before_id": 1, "_before_name": "a", "id": 1, "name": "b"}
    found = row_states(changes(spark, change), ORDERS, ["id", "name"])
    expected = states(
        spark, {"id": 1, "name": "a", "_deleted": True}, {"id": 1, "name": "b", "_deleted": False}
    )  # fmt: skip
    assert_df_equality(found, expected, ignore_nullable=True, ignore_metadata=True)


LATER = AT + datetime.timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ({"_order": [1, 9]}, {"_order": [2, 1]}),
        ({"_order": [2]}, {"_order": [2, 0]}),
        ({"_order": [0, 1_600_000_000_000]}, {"_order": [1, 7]}),
        ({"_store_timestamp": AT}, {"_store_timestamp": LATER}),
        ({"_broker": "a"}, {"_broker": "b"}),
        ({"_physical_offset": 9}, {"_physical_offset": 10}),
        ({"_row": 0}, {"_row": 1}),
        ({"_order": [1], "_store_timestamp": LATER}, {"_order": [2], "_store_timestamp": AT}),
    ],
)
def test_newest_state_of_a_row(spark: SparkSession, older: dict[str, Any], newer: dict[str, Any]) -> None:
    same = {"id": 1, "_order": [5], "_store_timestamp": AT, "_broker": "a", "_physical_offset": 0, "_row": 0}
    kept = {**same, **newer, "name": "newer", "_deleted": True}
    found = newest_states(states(spark, kept, {**same, **older, "name": "older", "_deleted": False}), ["id"])
    assert_df_equality(found, states(spark, kept), ignore_nullable=True, ignore_metadata=True)
