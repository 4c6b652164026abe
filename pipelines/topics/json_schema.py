"""The schema of a topic's documents: the part of JSON Schema that says which types fields have.

{"type": "object", "required": ["id"], "properties": {
    "id": {"type": "integer"},
    "total": {"type": ["number", "null"]},
    "paid_at": {"type": "string", "format": "date-time"},
    "lines": {"type": "array", "items": {"type": "object", "properties": {"sku": {"type": "string"}}}},
    "extra": {}}}

type                              column
string                            string
string, format date-time          timestamp; an RFC 3339 time with an offset from UTC
string, format date               date
integer                           long; a whole number without fraction or exponent
number                            double
boolean                           boolean
object with properties            struct
array with items                  array
none, or object or array without  string with the value's JSON text
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from commitlake.schemas.errors import CommitLakeError, ExitCode
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

MAX_DEPTH = 60
"""Largest depth of a schema: nested objects and lists."""
MAX_FIELDS = 10_000
_MAX_NAME = 255
_ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly",
        "writeOnly", "additionalProperties",
    }
)  # fmt: skip
_KEYWORDS = {"object": {"properties", "required"}, "array": {"items"}, "string": {"format"}}
# Delta tables have no such characters in the names of columns; Spark's SQL would need quotes for the others.
_UNUSABLE_NAME = re.compile(r"[ ,;{}()\n\t=]|[^\n\t -\U0010ffff]|^$")


class JsonSchemaError(CommitLakeError):
    """Error for a schema that is no JSON Schema, or has parts that columns cannot represent."""

    exit_code = ExitCode.USAGE


class JsonKind(StrEnum):
    """Kind of the values of a field."""

    STRING = "string"
    TIME = "date-time"
    DATE = "date"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    LIST = "array"
    ANY = "any"
    """Any value, which is kept as its JSON text."""


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of an object.

    Attributes:
        name: its name.
        type: type of its values.
        is_required: whether each object must have it.
    """

    name: str
    type: JsonType
    is_required: bool = False


@dataclass(frozen=True, slots=True)
class JsonType:
    """The type of a value in a document.

    Attributes:
        kind: kind of the value.
        is_nullable: whether it may be null.
        fields: the fields of an object.
        element: type of the elements of a list.
    """

    kind: JsonKind
    is_nullable: bool = False
    fields: tuple[JsonField, ...] = ()
    element: JsonType | None = None

    def to_column_type(self) -> DataType:
        """Return the type of a column with these values."""
        if self.kind is JsonKind.OBJECT:
            return self.to_columns()
        if self.kind is JsonKind.LIST:
            assert self.element is not None
            return ListOf(self.element.to_column_type(), has_nulls=True)
        return _COLUMN_TYPES[self.kind]

    def to_columns(self) -> Columns:
        """Return the columns of an object's fields."""
        return Columns(Column(field.name, field.type.to_column_type()) for field in self.fields)


_COLUMN_TYPES = {
    JsonKind.STRING: TEXT,
    JsonKind.TIME: TIME,
    JsonKind.DATE: DATE,
    JsonKind.INTEGER: INT64,
    JsonKind.NUMBER: DOUBLE,
    JsonKind.BOOLEAN: BOOLEAN,
    JsonKind.ANY: TEXT,
}


def parse_json_schema(text: str, source: str) -> JsonType:
    """Parse a JSON Schema of objects.

    Args:
        text: the schema.
        source: name of the file, for errors.

    Raises:
        JsonSchemaError: if it is not one, or has a keyword or a name that cannot be followed.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise JsonSchemaError(f"{source}: expected a JSON Schema, found no JSON: {error}") from None
    found = _parse_type(document, source, "#", 0)
    if found.kind is not JsonKind.OBJECT or found.is_nullable:
        raise JsonSchemaError(f'{source}: #: expected "type": "object" with properties, found {_short(document)}')
    if count_fields(found) > MAX_FIELDS:
        raise JsonSchemaError(f"{source}: expected at most {MAX_FIELDS:,} fields, found {count_fields(found):,}")
    return found


def count_fields(json_type: JsonType) -> int:
    """Return the number of fields of a type, at all depths."""
    below = sum(1 + count_fields(field.type) for field in json_type.fields)
    return below + (0 if json_type.element is None else count_fields(json_type.element))


def is_column_name(name: str) -> bool:
    """Return whether a field of this name can be a column."""
    return len(name) <= _MAX_NAME and _UNUSABLE_NAME.search(name) is None


def _parse_type(schema: object, source: str, place: str, depth: int) -> JsonType:
    if not isinstance(schema, Mapping):
        raise JsonSchemaError(f"{source}: {place}: expected an object with a type, found {_short(schema)}")
    if depth > MAX_DEPTH:
        raise JsonSchemaError(f"{source}: {place}: expected at most {MAX_DEPTH} levels of objects and lists")
    name, is_nullable = _parse_type_name(schema, source, place)
    allowed = _KEYWORDS.get(name, set())
    for keyword in schema:
        if keyword != "type" and keyword not in allowed | _ANNOTATIONS and not keyword.startswith("x-"):
            raise JsonSchemaError(
                f"{source}: {place}: expected {', '.join(sorted(allowed | {'type'}))}, found the keyword {keyword!a}, "
                "which does not say the type of a column. Leave it out"
            )
    if name == "object" and "properties" in schema:
        return JsonType(JsonKind.OBJECT, is_nullable, _parse_fields(schema, source, place, depth))
    if name == "array" and "items" in schema:
        return JsonType(
            JsonKind.LIST, is_nullable, element=_parse_type(schema["items"], source, f"{place}/items", depth + 1)
        )
    if name == "string" and (form := schema.get("format")) is not None:
        if form not in {JsonKind.TIME, JsonKind.DATE}:
            raise JsonSchemaError(f"{source}: {place}/format: expected date-time or date, found {_short(form)}")
        return JsonType(JsonKind(form), is_nullable)
    if name in {"", "object", "array"}:
        return JsonType(JsonKind.ANY, is_nullable or not name)
    return JsonType(JsonKind(name), is_nullable)


def _parse_type_name(schema: Mapping[str, Any], source: str, place: str) -> tuple[str, bool]:
    """Return the name of a schema's type, empty for none, and whether null is allowed beside it."""
    given = schema.get("type", "")
    names = given if isinstance(given, list) else [given]
    others = [name for name in names if name != "null"]
    known = {"", "string", "integer", "number", "boolean", "object", "array"}
    if len(others) != 1 or not all(isinstance(name, str) for name in names) or others[0] not in known:
        raise JsonSchemaError(
            f"{source}: {place}/type: expected one of {', '.join(sorted(known - {''}))}, with or without null, found "
            f"{_short(given)}. Leave the type out to keep values of several types as JSON text"
        )
    return others[0], "null" in names


def _parse_fields(schema: Mapping[str, Any], source: str, place: str, depth: int) -> tuple[JsonField, ...]:
    properties, required = schema["properties"], schema.get("required", [])
    if not isinstance(properties, Mapping) or not properties:
        raise JsonSchemaError(f"{source}: {place}/properties: expected fields by name, found {_short(properties)}")
    if not isinstance(required, list) or not all(name in properties for name in required):
        raise JsonSchemaError(f"{source}: {place}/required: expected names of properties, found {_short(required)}")
    fields, seen = [], dict[str, str]()
    for name, each in properties.items():
        if not is_column_name(name):
            raise JsonSchemaError(
                f"{source}: {place}/properties: the name {name[:80]!a} cannot be that of a column. Leave the field "
                "out: it is kept in _unknown"
            )
        if name.lower() in seen:
            raise JsonSchemaError(
                f"{source}: {place}/properties: the names {seen[name.lower()]!a} and {name!a} differ in case only, "
                "which columns cannot. Leave one out: it is kept in _unknown"
            )
        seen[name.lower()] = name
        child = _parse_type(each, source, f"{place}/properties/{name}", depth + 1)
        fields.append(JsonField(name, child, name in required))
    return tuple(fields)


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 80 else f"{text[:77]}..."
