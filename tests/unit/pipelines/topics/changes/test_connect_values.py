"""Tests of the values of Kafka Connect's JSON converter, with their schema and without."""

from __future__ import annotations

import json
from typing import Any

import pytest

from commitlake.pipelines.topics.changes.connect_values import decode_column, find_column_types
from commitlake.pipelines.topics.document_check import FaultError, decode_document
from commitlake.pipelines.topics.json_schema import JsonType, parse_json_schema
from tests.support.change_events import envelope_schema, to_decimal

KAFKA, ROCKETMQ = "org.apache.kafka.connect.data", "io.openmessaging.connector.api.data.logical"
STRING, NUMBER, INTEGER, BOOLEAN = ({"type": name} for name in ("string", "number", "integer", "boolean"))
DATE, TIME = ({"type": "string", "format": name} for name in ("date", "date-time"))
ANY: dict[str, Any] = {}


def decode(value: object, column: dict[str, Any] | None, wanted: dict[str, Any]) -> object:
    """Return the value of the column `c`, as it is read from an event with a schema, or without."""
    schema = None if column is None else decode_document(json.dumps(envelope_schema({"c": column})))
    topic = parse_json_schema(json.dumps({"type": "object", "properties": {"c": wanted}}), "test")
    types: JsonType = topic.fields[0].type
    return decode_column(find_column_types(schema, "after"), "c", decode_document(json.dumps(value)), types, "after.c")


def logical(name: str, base: str = "int64", **parameters: str) -> dict[str, Any]:
    """Return the schema of a logical type."""
    return {"type": base, "name": name, "version": 1, "parameters": parameters}


@pytest.mark.parametrize(
    ("number", "scale"),
    [
        ("0", 0),
        ("2.50", 2),
        ("-2.50", 2),
        ("-0.01", 2),
        ("127", 0),
        ("128", 0),
        ("-128", 0),
        ("-129", 0),
        ("9" * 65, 0),
    ],
)
@pytest.mark.parametrize("owner", [KAFKA, ROCKETMQ])
def test_decimals_keep_all_digits(number: str, scale: int, owner: str) -> None:
    column = logical(f"{owner}.Decimal", "bytes", scale=str(scale))
    assert decode(to_decimal(number, scale), column, NUMBER) == number
    assert decode(to_decimal(number, scale), column, STRING) == number


def test_decimals_with_a_negative_scale() -> None:
    assert decode("BQ==", logical(f"{KAFKA}.Decimal", "bytes", scale="-3"), INTEGER) == "5000"


@pytest.mark.parametrize("column", [None, {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}])
def test_decimals_with_their_own_scale_need_no_schema(column: dict[str, Any] | None) -> None:
    assert decode({"scale": 3, "value": to_decimal("1.125", 3)}, column, NUMBER) == "1.125"


@pytest.mark.parametrize(
    ("value", "name", "wanted", "expected"),
    [
        (20_777, "io.debezium.time.Date", DATE, "2026-11-20"),
        (-1, f"{KAFKA}.Date", DATE, "1969-12-31"),
        (20_777, f"{ROCKETMQ}.Date", STRING, "2026-11-20"),
        (20_777, "io.debezium.time.Date", INTEGER, "20777"),
        ("2026-11-20Z", "io.debezium.time.IsoDate", DATE, "2026-11-20"),
        (1_529_476_623_000, "io.debezium.time.Timestamp", TIME, "2018-06-20 06:37:03"),
        (1_529_476_623_120, f"{KAFKA}.Timestamp", TIME, "2018-06-20 06:37:03.120000"),
        (1_529_476_623_000_001, "io.debezium.time.MicroTimestamp", TIME, "2018-06-20 06:37:03.000001"),
        (1_529_476_623_000_001_000, "io.debezium.time.NanoTimestamp", TIME, "2018-06-20 06:37:03.000001"),
        (-1, "io.debezium.time.MicroTimestamp", TIME, "1969-12-31 23:59:59.999999"),
        (1_529_476_623_000, "io.debezium.time.Timestamp", INTEGER, "1529476623000"),
        ("2018-06-20T06:37:03.5Z", "io.debezium.time.IsoTimestamp", TIME, "2018-06-20 06:37:03.5"),
        ("2018-06-20T06:37:03Z", "io.debezium.time.ZonedTimestamp", TIME, "2018-06-20T06:37:03Z"),
        (50_400_500, "io.debezium.time.Time", STRING, "14:00:00.500000"),
        (50_400_000_001, "io.debezium.time.MicroTime", STRING, "14:00:00.000001"),
        (-3_020_399_000_000, "io.debezium.time.MicroTime", STRING, "-838:59:59"),
        (50_400_000_000_000, "io.debezium.time.NanoTime", STRING, "14:00:00"),
        (50_400_000, "io.debezium.time.Time", INTEGER, "50400000"),
        ('{"a":1}', "io.debezium.data.Json", STRING, '{"a":1}'),
        ('{"a":1}', "io.debezium.data.Json", ANY, [("a", "1")]),
        ("small", "io.debezium.data.Enum", STRING, "small"),
        ("YQ==", "io.debezium.data.Bits", STRING, "YQ=="),
        (None, "io.debezium.time.Date", DATE, None),
    ],
)
def test_values_with_a_schema(value: object, name: str, wanted: dict[str, Any], expected: object) -> None:
    assert decode(value, logical(name), wanted) == expected


def test_values_in_lists_and_objects() -> None:
    price = logical(f"{KAFKA}.Decimal", "bytes", scale="2")
    column = {"type": "array", "items": {"type": "struct", "fields": [{**price, "field": "price"}]}}
    wanted = {"type": "array", "items": {"type": "object", "properties": {"price": NUMBER}}}
    assert decode([{"price": to_decimal("2.50", 2), "x": 1}], column, wanted) == [[("price", "2.50"), ("x", "1")]]


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (20_777, DATE, "2026-11-20"),
        ("2.50", NUMBER, "2.50"),
        (2.5, NUMBER, "2.5"),
        ("2018-06-20T06:37:03Z", TIME, "2018-06-20T06:37:03Z"),
        ("APo=", STRING, "APo="),
        (1_529_476_623_000, INTEGER, "1529476623000"),
    ],
)
def test_values_that_need_no_schema(value: object, wanted: dict[str, Any], expected: object) -> None:
    assert decode(value, None, wanted) == expected


@pytest.mark.parametrize(
    ("value", "column", "wanted", "reason"),
    [
        ("APo=", None, NUMBER, "needs_schema"),
        ("APo=", None, INTEGER, "needs_schema"),
        (1_529_476_623_000, None, TIME, "needs_schema"),
        ("APo=", logical(f"{KAFKA}.Decimal", "bytes"), NUMBER, "needs_schema"),
        ("APo=", logical(f"{KAFKA}.Decimal", "bytes", scale="1000000000"), NUMBER, "needs_schema"),
        ("AP", logical(f"{KAFKA}.Decimal", "bytes", scale="2"), NUMBER, "wrong_type"),
        ("é", logical(f"{KAFKA}.Decimal", "bytes", scale="2"), NUMBER, "wrong_type"),
        ("", logical(f"{KAFKA}.Decimal", "bytes", scale="2"), NUMBER, "wrong_type"),
        ("AAAA" * 200, logical(f"{KAFKA}.Decimal", "bytes", scale="2"), NUMBER, "out_of_range"),
        (1 << 40, logical("io.debezium.time.Date"), DATE, "out_of_range"),
        (1 << 62, logical("io.debezium.time.Timestamp"), TIME, "out_of_range"),
        (1, logical("io.debezium.time.NanoTimestamp"), TIME, "out_of_range"),
        ("{", logical("io.debezium.data.Json"), ANY, "not_json"),
        ("__debezium_unavailable_value", {"type": "string"}, STRING, "not_sent"),
        ("__debezium_unavailable_value", None, STRING, "not_sent"),
        (["__debezium_unavailable_value"], None, {"type": "array", "items": STRING}, "not_sent"),
    ],
)
def test_values_that_cannot_be_decoded(
    value: object, column: dict[str, Any] | None, wanted: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FaultError) as raised:
        decode(value, column, wanted)
    assert raised.value.misfit.reason == reason


@pytest.mark.parametrize("schema", [None, 5, [], {}, {"fields": 5}, {"fields": [5, {"field": 5}, {"field": "after"}]}])
def test_any_schema_is_one_that_says_no_more_than_it_does(schema: object) -> None:
    types = find_column_types(decode_document(json.dumps(schema)), "after")
    assert not types
