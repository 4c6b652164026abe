"""Tables' columns as Arrow's schemas."""

from __future__ import annotations

import pyarrow as pa

from commitlake.schemas.tables.columns import Columns, DataType, ListOf, MapOf, ScalarType

_SCALARS = {
    ScalarType.TEXT: pa.string(),
    ScalarType.BINARY: pa.binary(),
    ScalarType.BOOLEAN: pa.bool_(),
    ScalarType.INT32: pa.int32(),
    ScalarType.INT64: pa.int64(),
    ScalarType.DOUBLE: pa.float64(),
    ScalarType.DATE: pa.date32(),
    ScalarType.TIME: pa.timestamp("us", "UTC"),
}


def arrow_schema(columns: Columns) -> pa.Schema:
    """Return declared columns as an Arrow schema, with the names and types that Spark gives them, and no comments."""
    return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in columns])


def arrow_type(data_type: DataType) -> pa.DataType:
    """Return the Arrow type for a declared column type."""
    match data_type:
        case Columns():
            return pa.struct(list(arrow_schema(data_type)))
        case ListOf(element, has_nulls):
            return pa.list_(pa.field("element", arrow_type(element), nullable=has_nulls))
        case MapOf(key, value):
            return pa.map_(arrow_type(key), pa.field("value", arrow_type(value), nullable=False))
    return _SCALARS[data_type]
