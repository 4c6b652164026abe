"""Conversion of Arrow columns to the arrays of the kernel."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import to_uint8_array
from commitlake.connectors.numpy_arrays import Array


def to_int64_array(column: pa.Array) -> Array:
    """Return a column of numbers as int64; nulls are 0."""
    return np.array(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def to_milliseconds(column: pa.Array) -> Array:
    """Return a column of times as milliseconds since 1970; nulls are 0."""
    times: Array = to_int64_array(column.cast(pa.timestamp("us", "UTC"))) // 1000
    return times


def to_bytes_and_offsets(column: pa.Array) -> tuple[Array, Array]:
    """Return the concatenated bytes of a column of strings, and their n + 1 offsets."""
    strings = column.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    starts = np.zeros(1, np.int64) if offsets is None else np.frombuffer(offsets, np.int64)
    return to_uint8_array(data), np.array(starts[strings.offset : strings.offset + len(strings) + 1])


def encode_strings(column: pa.Array) -> tuple[Array, list[str | None]]:
    """Return an integer code for each row of a column of strings, and the list of strings by code."""
    encoded = column.cast(pa.large_string()).dictionary_encode()
    values: list[str | None] = [*encoded.dictionary.to_pylist(), None]
    return np.array(encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False), np.int64), values
