"""Arrow arrays around buffers that the kernel filled, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from connectors.commitlog.kernel import columns as kernel

Array = np.ndarray[Any, Any]
_CODE_TYPE = pa.int32()


def fixed(values: Array, data_type: pa.DataType) -> pa.Array:
    """An array of numbers or timestamps without nulls."""
    return pa.Array.from_buffers(data_type, len(values), [None, pa.py_buffer(values)])


def validity(present: Array) -> pa.Buffer | None:
    """The bitmap of a boolean array, or None where all is there."""
    if present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def spans(window: Array, positions: Array, lengths: Array, data_type: pa.DataType) -> pa.Array:
    """Strings or binaries copied out of a window; a negative length is null."""
    offsets = np.empty(len(lengths) + 1, np.int32)
    total = kernel.spans_to_offsets(lengths, offsets)
    data = np.empty(total, np.uint8)
    kernel.copy_spans(window, positions, lengths, data)
    bitmap = validity(lengths >= 0)
    return pa.Array.from_buffers(data_type, len(lengths), [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)])


def lists(offsets: Array, values: pa.Array, present: Array) -> pa.Array:
    """Lists of strings; null where not present."""
    data_type = pa.list_(pa.field("element", values.type, nullable=False))
    bitmap = validity(present)
    return pa.Array.from_buffers(data_type, len(offsets) - 1, [bitmap, pa.py_buffer(offsets)], children=[values])


def maps(offsets: Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Maps from string to string, none of them null."""
    entry = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string(), nullable=False)])
    entries = pa.StructArray.from_arrays([keys, values], fields=list(entry))
    data_type = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
    return pa.Array.from_buffers(data_type, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[entries])


def repeated(codes: Array, values: list[str]) -> pa.Array:
    """Strings by number, from a short list of distinct ones; the code -1 is null."""
    indices = pa.array(codes, _CODE_TYPE, mask=codes < 0)
    return pa.array(values, pa.string()).take(indices)


def constant(value: str | None, length: int) -> pa.Array:
    """The same string in every row."""
    return pa.repeat(pa.scalar(value, pa.string()), length)
