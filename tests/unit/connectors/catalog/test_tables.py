"""Tests of the description of a table for a catalog."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deltalake import Schema

from commitlake.connectors.catalog.tables import catalog_columns, sql_type
from commitlake.schemas.tables.messages import MESSAGES
from commitlake.schemas.tables.spark_schemas import spark_schema


def test_a_column_has_its_type_in_three_forms_its_comment_and_its_place() -> None:
    fields = [
        {"name": "topic", "type": "string", "nullable": False, "metadata": {"comment": "its topic"}},
        {"name": "price", "type": "decimal(10,2)", "nullable": True, "metadata": {}},
        {"name": "date", "type": "date", "nullable": True, "metadata": {}},
    ]
    topic, price, date = catalog_columns({"fields": fields}, ["date"])
    assert topic == {
        "name": "topic", "type_text": "string", "type_name": "STRING", "type_json": topic["type_json"], "position": 0,
        "nullable": False, "comment": "its topic",
    }  # fmt: skip
    assert json.loads(topic["type_json"]) == fields[0]
    assert (price["type_text"], price["type_name"]) == ("decimal(10,2)", "DECIMAL")
    assert (date["type_name"], date["position"], date["partition_index"]) == ("DATE", 2, 0)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("long", "bigint"),
        ("integer", "int"),
        ({"type": "array", "elementType": "string", "containsNull": False}, "array<string>"),
        ({"type": "map", "keyType": "string", "valueType": "double"}, "map<string,double>"),
        (
            {"type": "struct", "fields": [{"name": "a", "type": "short"}, {"name": "b", "type": "timestamp"}]},
            "struct<a:smallint,b:timestamp>",
        ),
    ],
)
def test_types_have_the_names_of_sql(kind: Any, text: str) -> None:
    assert sql_type(kind) == text


def test_every_column_of_messages_has_a_comment_and_the_type_that_spark_shows() -> None:
    columns = catalog_columns(json.loads(Schema.from_json(MESSAGES.to_json()).to_json()), ["store_date"])
    assert [column["type_text"] for column in columns] == [
        field.dataType.simpleString() for field in spark_schema(MESSAGES)
    ]
    assert all(column["comment"] for column in columns)
