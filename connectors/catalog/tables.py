"""A Delta table, as the catalog describes it: columns by name, with their types in three forms and their comments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Delta's name of a type, its name in SQL, and the catalog's.
_TYPES = {
    "string": ("string", "STRING"),
    "long": ("bigint", "LONG"),
    "integer": ("int", "INT"),
    "short": ("smallint", "SHORT"),
    "byte": ("tinyint", "BYTE"),
    "float": ("float", "FLOAT"),
    "double": ("double", "DOUBLE"),
    "boolean": ("boolean", "BOOLEAN"),
    "binary": ("binary", "BINARY"),
    "date": ("date", "DATE"),
    "timestamp": ("timestamp", "TIMESTAMP"),
    "timestamp_ntz": ("timestamp_ntz", "TIMESTAMP_NTZ"),
}


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The description of a table of a lake, for its registration in a catalog.

    Attributes:
        name: its name in the schema, and that of its folder.
        comment: what its rows are.
        columns: its columns, as `catalog_columns` returns them.
    """

    name: str
    comment: str
    columns: Sequence[Mapping[str, Any]]


def catalog_columns(delta_schema: Mapping[str, Any], partition_columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns of a Delta table in the form in which a catalog describes them.

    Args:
        delta_schema: Delta's schema, parsed from its JSON.
        partition_columns: names of the partition columns.
    """
    columns = []
    for position, field in enumerate(delta_schema["fields"]):
        name, text = field["name"], sql_type(field["type"])
        column = {
            "name": name,
            "type_text": text,
            "type_name": _catalog_type(field["type"]),
            "type_json": json.dumps(field, separators=(",", ":")),
            "position": position,
            "nullable": field["nullable"],
        }
        if comment := field["metadata"].get("comment"):
            column["comment"] = comment
        if name in partition_columns:
            column["partition_index"] = list(partition_columns).index(name)
        columns.append(column)
    return columns


def sql_type(delta_type: Any) -> str:
    """Return the SQL text of a Delta type, in Spark's short form.

    >>> sql_type({"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "long"}})
    'map<string,array<bigint>>'
    """
    if isinstance(delta_type, str):
        return _TYPES[delta_type][0] if delta_type in _TYPES else delta_type  # for example decimal(10,2)
    if delta_type["type"] == "array":
        return f"array<{sql_type(delta_type['elementType'])}>"
    if delta_type["type"] == "map":
        return f"map<{sql_type(delta_type['keyType'])},{sql_type(delta_type['valueType'])}>"
    return "struct<" + ",".join(f"{field['name']}:{sql_type(field['type'])}" for field in delta_type["fields"]) + ">"


def _catalog_type(delta_type: Any) -> str:
    if isinstance(delta_type, str):
        return _TYPES[delta_type][1] if delta_type in _TYPES else delta_type.partition("(")[0].upper()
    return str(delta_type["type"]).upper()
