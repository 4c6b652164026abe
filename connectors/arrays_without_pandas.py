"""Arrow arrays made without `pyarrow.array` and `pyarrow.scalar`, whose first use imports pandas.

The first value passed to either imports pandas, which takes a quarter of a second: as long as many queries.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array, read_only_view
from commitlake.schemas.times import EPOCH


def to_boolean_array(booleans: Array) -> pa.Array:
    """Convert numpy booleans to an Arrow array.

    Args:
        booleans: numpy array of booleans.
    """
    bits = np.packbits(booleans, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(booleans), [None, pa.py_buffer(bits)])


def repeat_value(value: bool | int, data_type: pa.DataType, count: int) -> pa.Array:
    """Return an Arrow array that repeats one integer or boolean.

    Args:
        value: the number.
        data_type: an integer type or boolean.
        count: length of the array.
    """
    if pa.types.is_boolean(data_type):
        return to_boolean_array(np.full(count, value, bool))
    numbers = np.full(count, value, data_type.to_pandas_dtype())
    return pa.Array.from_buffers(data_type, count, [None, pa.py_buffer(numbers)])


def to_string_array(values: Sequence[str]) -> pa.Array:
    """Return an Arrow array of these strings."""
    data = [value.encode("utf-8", "surrogatepass") for value in values]
    offsets = read_only_view(np.cumsum([0, *map(len, data)], dtype=np.int32))
    return pa.Array.from_buffers(pa.string(), len(data), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))])


def repeat_string(text: str, count: int) -> pa.DictionaryArray:
    """Return an Arrow dictionary array that repeats one string."""
    data = text.encode()
    offsets = np.array([0, len(data)], np.int32)
    dictionary = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.DictionaryArray.from_arrays(repeat_value(0, pa.int32(), count), dictionary)


def join_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Return a chunked column as one array, also if it has no chunk."""
    return column.combine_chunks() if column.num_chunks else pa.nulls(0, column.type)


def to_numpy_numbers(column: pa.Array | pa.ChunkedArray, null_value: int = 0) -> Array:
    """Return a column of integers, times or booleans as a numpy array.

    Args:
        null_value: replacement for nulls.
    """
    array = join_chunks(column) if isinstance(column, pa.ChunkedArray) else column
    valid, data = array.buffers()
    if pa.types.is_boolean(array.type):
        numbers = _unpack_bits(data, array)
    elif pa.types.is_timestamp(array.type):
        numbers = _number_array(data, array, np.int64)
    else:
        numbers = _number_array(data, array, array.type.to_pandas_dtype())
    return np.where(_unpack_bits(valid, array), numbers, null_value) if array.null_count else numbers


def _number_array(data: pa.Buffer, array: pa.Array, data_type: type) -> Array:
    if not len(array):
        return np.zeros(0, data_type)
    return np.frombuffer(data, data_type)[array.offset : array.offset + len(array)]


def _unpack_bits(data: pa.Buffer, array: pa.Array) -> Array:
    if not len(array):
        return np.zeros(0, bool)
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=array.offset + len(array), bitorder="little")
    return bits[array.offset :].astype(bool)


def to_uint8_array(data: pa.Buffer | bytes | bytearray | memoryview | None) -> Array:
    """Return bytes as a read-only array of uint8; an empty array for None."""
    return read_only_view(np.frombuffer(data, np.uint8) if data is not None and len(data) else np.empty(0, np.uint8))


def string_bytes_and_offsets(texts: pa.Array) -> tuple[Array, Array]:
    """Return the UTF-8 bytes of an array of n strings, and their n + 1 offsets, as read-only arrays.

    Args:
        texts: array of strings or binary values with offsets of 32 bits.
    """
    _, offsets, data = texts.buffers()
    if not len(texts):
        return to_uint8_array(None), read_only_view(np.zeros(1, np.int32))
    return to_uint8_array(data), read_only_view(np.frombuffer(offsets, np.int32, len(texts) + 1, 4 * texts.offset))


def to_utc_times(column: pa.Array | pa.ChunkedArray) -> list[datetime.datetime | None]:
    """Return the times of a column in UTC; None for a null, and for a time outside Python's calendar.

    Args:
        column: a column of timestamps in microseconds.
    """
    return [_to_time(microseconds) for microseconds in column.cast(pa.int64()).to_pylist()]


def _to_time(microseconds: int | None) -> datetime.datetime | None:
    try:
        return None if microseconds is None else EPOCH + datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        return None


def rows_to_dicts(table: pa.Table) -> list[dict[str, Any]]:
    """Return a table's rows as dictionaries, with None for values that Python cannot represent.

    These are times outside its calendar and texts that are not UTF-8. Only another program can have written them.
    """
    columns = [_column_values(column) for column in table.columns]
    return [dict(zip(table.column_names, values, strict=True)) for values in zip(*columns, strict=True)]


def _column_values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (OverflowError, ValueError):
        return [_scalar_value(scalar) for scalar in column]


def _scalar_value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return None
