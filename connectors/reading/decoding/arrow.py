"""Arrow arrays on buffers that the kernel filled, without copying."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets, to_string_array
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel import strings as kernel
from commitlake.connectors.reading.kernel.memory_access import OVERWRITE, PADDING

_FEW_ROWS = 1024
_MAX_BUFFERS = 4  # times the size of the rows
_MAX_CONSTANTS = 16  # a long text may take some MiB


def fixed_width_array(values: Array, data_type: pa.DataType) -> pa.Array:
    """Return an array of numbers or timestamps without nulls."""
    return pa.Array.from_buffers(data_type, len(values), [None, pa.py_buffer(values)])


def validity_bitmap(is_present: Array) -> pa.Buffer | None:
    """Return Arrow's validity bitmap for an array of booleans, or None if all values are present."""
    if is_present.all():
        return None
    return pa.py_buffer(np.packbits(is_present, bitorder="little"))


def string_array(offsets: Array, data: Array, is_present: Array | None = None) -> pa.Array:
    """Return an array of strings from Arrow's offsets and data; values that are not present are null."""
    bitmap = None if is_present is None else validity_bitmap(is_present)
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def span_array(window: Array, positions: Array, lengths: Array, data_type: pa.DataType) -> pa.Array:
    """Return values copied from a window as strings or binaries; a value with a negative length is null."""
    offsets = np.empty(len(lengths) + 1, np.int32)
    total = kernel.spans_to_offsets(lengths, offsets)
    data = np.empty(total + OVERWRITE, np.uint8)
    kernel.copy_spans(window, positions, lengths, data)
    bitmap = validity_bitmap(lengths >= 0)
    return pa.Array.from_buffers(data_type, len(lengths), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def list_array(offsets: Array, values: pa.Array, is_present: Array) -> pa.Array:
    """Return an array of lists of strings from Arrow's offsets; lists that are not present are null."""
    data_type = pa.list_(pa.field("element", values.type, nullable=False))
    bitmap = validity_bitmap(is_present)
    return pa.Array.from_buffers(data_type, len(offsets) - 1, [bitmap, pa.py_buffer(offsets)], children=[values])


def map_array(offsets: Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return an array of maps from string to string, without nulls."""
    entry = [pa.field("key", keys.type, nullable=False), pa.field("value", pa.string(), nullable=False)]
    entries = pa.StructArray.from_buffers(pa.struct(entry), len(keys), [None], children=[keys, values])
    data_type = pa.map_(keys.type, entry[1])
    return pa.Array.from_buffers(data_type, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[entries])


def compact_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows; if they are few, copy them from the kernel's large buffers to buffers of their size.

    A caller that keeps the rows of many small files would otherwise keep some MiB for each of them.
    """
    # A column of numbers holds those of all columns, which its size does not tell.
    if batch.num_rows >= _FEW_ROWS and batch.get_total_buffer_size() <= _MAX_BUFFERS * batch.nbytes:
        return batch
    # `take` copies to buffers of the exact size, whereas a slice would share the large ones.
    return batch.take(pa.array(np.arange(batch.num_rows)))


class Dictionary:
    """Array of distinct strings; rows refer to a string by its index, called its code."""

    def __init__(self, values: list[str]) -> None:
        self.array = to_string_array(values)
        data, self._offsets = string_bytes_and_offsets(self.array)
        # The kernel reads whole blocks, so the values need its padding.
        self._data = np.zeros(len(data) + PADDING, np.uint8)
        self._data[:-PADDING] = data

    def to_dictionary_array(self, codes: Array) -> pa.Array:
        """Return the strings with the given codes as an Arrow dictionary array; code -1 is null."""
        bitmap = validity_bitmap(codes >= 0)
        indices = pa.Array.from_buffers(pa.int32(), len(codes), [bitmap, pa.py_buffer(codes)])
        # Unsafe means unchecked: the kernel numbers values itself, and checking all indexes would read them once more.
        return pa.DictionaryArray.from_arrays(indices, self.array, safe=False)

    def to_string_array(self, codes: Array) -> pa.Array:
        """Return the strings with the given codes as a plain Arrow array; code -1 is null."""
        offsets = np.empty(len(codes) + 1, np.int32)
        data = np.empty(kernel.size_of_expanded_codes(codes, self._offsets) + OVERWRITE, np.uint8)
        kernel.expand_codes(codes, self._offsets, self._data, offsets, data)
        return string_array(offsets, data, codes >= 0)


def constant_array(text: str, row_count: int, *, as_dictionary: bool) -> pa.Array:
    """Return an array with the same string in every row, shared by all batches.

    Args:
        text: the string.
        row_count: the number of rows, at most that of a batch.
        as_dictionary: return a dictionary array.
    """
    # Sizes are rounded up to powers of two, so that the few that exist are shared by batches of all sizes.
    return _make_constant_array(text, 1 << max(0, row_count - 1).bit_length(), as_dictionary=as_dictionary).slice(
        0, row_count
    )


@lru_cache(maxsize=_MAX_CONSTANTS)
def _make_constant_array(text: str, row_count: int, *, as_dictionary: bool) -> pa.Array:
    dictionary, codes = Dictionary([text]), np.zeros(row_count, np.int32)
    return dictionary.to_dictionary_array(codes) if as_dictionary else dictionary.to_string_array(codes)
