"""Arrow columns as the arrays that the kernel takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays import Array


def numbers(column: pa.Array) -> Array:
    """A column of numbers as int64; nulls are 0."""
    return np.array(column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def milliseconds(column: pa.Array) -> Array:
    """A column of times as ms since 1970; nulls are 0."""
    times: Array = numbers(column.cast(pa.timestamp("us", "UTC"))) // 1000
    return times


def spans(column: pa.Array) -> tuple[Array, Array]:
    """The bytes of a column of strings, and the n + 1 places where they begin."""
    strings = column.cast(pa.large_binary())
    _, offsets, data = strings.buffers()
    starts = np.zeros(1, np.int64) if offsets is None else np.frombuffer(offsets, np.int64)
    return read_only(data), np.array(starts[strings.offset : strings.offset + len(strings) + 1])


def read_only(data: Any) -> Array:
    """Bytes for the kernel, which is compiled for such that nobody writes to."""
    found = np.frombuffer(b"" if data is None else data, np.uint8)
    found.flags.writeable = False
    return found


def coded(column: pa.Array) -> tuple[Array, list[str | None]]:
    """A column of strings that repeat: a number for each row, and what the numbers mean."""
    encoded = column.cast(pa.large_string()).dictionary_encode()
    values: list[str | None] = [*encoded.dictionary.to_pylist(), None]
    return np.array(encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False), np.int64), values
