"""Tests of the part of JSON Schema that says the types of columns."""

from __future__ import annotations

import json

import pytest

from commitlake.pipelines.topics.json_schema import JsonSchemaError, count_fields, parse_json_schema
from commitlake.schemas.tables.columns import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INT64,
    TEXT,
    TIME,
    Column,
    Columns,
    DataType,
    ListOf,
)

PROPERTIES = {
    "s": {"type": "string", "description": "a text", "x-share": 0.5},
    "t": {"type": ["string", "null"], "format": "date-time"},
    "d": {"type": "string", "format": "date"},
    "i": {"type": "integer"},
    "n": {"type": "number"},
    "b": {"type": "boolean"},
    "o": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "l": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    "any": {},
    "loose": {"type": "object"},
    "list": {"type": "array"},
}


def test_types_become_columns() -> None:
    schema = parse_json_schema(json.dumps({"type": "object", "properties": PROPERTIES}), "f")
    texts = ListOf(TEXT, has_nulls=True)
    expected: dict[str, DataType] = {
        "s": TEXT, "t": TIME, "d": DATE, "i": INT64, "n": DOUBLE, "b": BOOLEAN, "o": Columns([Column("x", INT64)]),
        "l": ListOf(texts, has_nulls=True), "any": TEXT, "loose": TEXT, "list": TEXT,
    }  # fmt: skip
    assert schema.to_columns() == Columns(Column(name, kind) for name, kind in expected.items())
    assert count_fields(schema) == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "f: expected a JSON Schema, found no JSON"),
        ("[]", "f: #: expected an object with a type, found []"),
        ('{"type": "array", "items": {}}', 'f: #: expected "type": "object" with properties'),
        ('{"type": "object"}', 'f: #: expected "type": "object" with properties'),
        ('{"type": "object", "properties": {}}', "f: #/properties: expected fields by name, found {}"),
        ('{"type": "object", "properties": {"a": {"type": "text"}}}', "f: #/properties/a/type: expected one of array,"),
        ('{"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}', "Leave the type out"),
        ('{"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}}', "found the keyword 'pattern'"),
        ('{"type": "object", "properties": {"a": {"type": "string", "format": "uuid"}}}', "#/properties/a/format"),
        ('{"type": "object", "properties": {"a": {}}, "required": ["b"]}', "f: #/required: expected names of proper"),
        ('{"type": "object", "properties": {"a": {}, "A": {}}}', "differ in case only"),
        ('{"type": "object", "properties": {"a b": {}}}', "the name 'a b' cannot be that of a column"),
        ('{"type": "object", "properties": {"' + "a" * 300 + '": {}}}', "cannot be that of a column"),
    ],
)
def test_what_columns_cannot_have_is_refused(text: str, message: str) -> None:
    with pytest.raises(JsonSchemaError) as raised:
        parse_json_schema(text, "f")
    assert message in str(raised.value)


def test_deep_and_wide_schemas_are_refused() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(61):
        deep = {"type": "object", "properties": {"a": deep}}
    with pytest.raises(JsonSchemaError, match="at most 60 levels"):
        parse_json_schema(json.dumps(deep), "f")
    wide = {"type": "object", "properties": {f"f{number}": {"type": "integer"} for number in range(10_001)}}
    with pytest.raises(JsonSchemaError, match="at most 10,000 fields, found 10,001"):
        parse_json_schema(json.dumps(wide), "f")
