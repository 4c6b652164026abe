"""Columns of tables, and their form for Spark and Delta."""

from __future__ import annotations

import json

import pytest

from commitlake.schemas.tables.columns import DATE, INT64, TEXT, TIME, Column, Columns, ListOf, MapOf
from commitlake.schemas.tables.spark_schemas import spark_field, spark_schema

TABLE = Columns(
    [
        Column("topic", TEXT, "the topic"),
        Column("keys", ListOf(TEXT)),
        Column("place", Columns([Column("offset", INT64, "bytes"), Column("at", TIME)])),
        Column("properties", MapOf(TEXT, TEXT)),
        Column("day", DATE),
    ]
)


def test_columns_are_chosen_by_name() -> None:
    assert TABLE.names == ["topic", "keys", "place", "properties", "day"]
    assert TABLE.select_columns(["day", "topic"]).names == ["day", "topic"]
    assert TABLE.drop_columns("place", "properties").names == ["topic", "keys", "day"]
    assert TABLE["topic"] == Column("topic", TEXT, "the topic")


def test_an_unknown_column_is_an_error() -> None:
    with pytest.raises(KeyError, match="tpic"):
        TABLE.select_columns(["tpic"])


def test_spark_has_the_same_types_and_comments() -> None:
    found = spark_schema(TABLE)
    assert found.simpleString() == (
        "struct<topic:string,keys:array<string>,place:struct<offset:bigint,at:timestamp>,"
        "properties:map<string,string>,day:date>"
    )
    assert found["topic"].metadata == {"comment": "the topic"}
    assert found["keys"].metadata == {}
    assert all(field.nullable for field in found)
    assert found["topic"] == spark_field(TABLE["topic"])


def test_the_json_is_that_of_spark() -> None:
    assert json.loads(TABLE.to_json()) == json.loads(spark_schema(TABLE).json())
