"""Columns of tables. Each table declares them once; the other forms are derived from them.

Delta's and Spark's JSON  `Columns.to_json`
Spark's schema            `schemas.tables.spark_schemas.spark_schema`
Arrow's schema            `connectors.arrow_schemas.arrow_schema`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias


class ScalarType(StrEnum):
    """Types of single values, with their names in the JSON schemas of Delta."""

    TEXT = "string"
    BINARY = "binary"
    BOOLEAN = "boolean"
    INT32 = "integer"
    INT64 = "long"
    DOUBLE = "double"
    DATE = "date"
    TIME = "timestamp"
    """A time in UTC, in microseconds."""


TEXT, BINARY, BOOLEAN, DOUBLE = ScalarType.TEXT, ScalarType.BINARY, ScalarType.BOOLEAN, ScalarType.DOUBLE
INT32, INT64, DATE, TIME = ScalarType.INT32, ScalarType.INT64, ScalarType.DATE, ScalarType.TIME


@dataclass(frozen=True, slots=True)
class ListOf:
    """The type of lists.

    Attributes:
        element: type of the elements.
        has_nulls: whether elements may be null.
    """

    element: DataType
    has_nulls: bool = False


@dataclass(frozen=True, slots=True)
class MapOf:
    """The type of maps, whose values are never null."""

    key: DataType
    value: DataType


class Column(NamedTuple):
    """Column with a name, a type and a comment; its values may be null."""

    name: str
    type: DataType
    comment: str = ""


@dataclass(frozen=True, slots=True, init=False)
class Columns:
    """Ordered columns of a table, or of a nested column."""

    columns: tuple[Column, ...]

    def __init__(self, columns: Iterable[Column]) -> None:
        object.__setattr__(self, "columns", tuple(columns))

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __getitem__(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""
        return [column.name for column in self.columns]

    def select_columns(self, names: Iterable[str]) -> Columns:
        """Return the columns with the given names, in the order of the names."""
        return Columns(self[name] for name in names)

    def drop_columns(self, *names: str) -> Columns:
        """Return the columns except those with the given names."""
        return Columns(column for column in self.columns if column.name not in names)

    def to_json(self) -> str:
        """Return the columns as the JSON schema that Delta's log contains and Spark's `StructType.fromJson` reads."""
        return json.dumps(_type_to_json(self))


DataType: TypeAlias = ScalarType | ListOf | MapOf | Columns


def _type_to_json(data_type: DataType) -> Any:
    match data_type:
        case Columns(columns):
            return {"type": "struct", "fields": _fields_to_json(columns)}
        case ListOf(element, has_nulls):
            return {"type": "array", "elementType": _type_to_json(element), "containsNull": has_nulls}
        case MapOf(key, value):
            kinds = {"keyType": _type_to_json(key), "valueType": _type_to_json(value)}
            return {"type": "map", **kinds, "valueContainsNull": False}
    return str(data_type)


def _fields_to_json(columns: Sequence[Column]) -> list[dict[str, Any]]:
    return [
        {
            "name": column.name,
            "type": _type_to_json(column.type),
            "nullable": True,
            "metadata": {"comment": column.comment} if column.comment else {},
        }
        for column in columns
    ]
