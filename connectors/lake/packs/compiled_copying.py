"""Compiled functions that copy bodies between windows, frames and Arrow buffers, and compare CRCs.

`fill_frame` and `copy_from_frame` copy with memcpy, which numba does not provide: a loop over bytes takes 25 times as
long, an assignment of slices 6 times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.core import cgutils

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled, emitted
from commitlake.connectors.reading.kernel.crc import crc32

UNKNOWN_CRC = -(1 << 63)  # outside int32, so no table contains it


def _memcpy(_typing_context: Any, target: Any, target_offset: Any, source: Any, source_offset: Any, length: Any) -> Any:
    def emit_memcpy_call(context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        to, to_at, of, of_at, size = arguments
        to_data = context.make_array(signature.args[0])(context, builder, to).data
        of_data = context.make_array(signature.args[2])(context, builder, of).data
        to_address, of_address = builder.gep(to_data, [to_at]), builder.gep(of_data, [of_at])
        cgutils.raw_memcpy(builder, to_address, of_address, size, 1)  # type: ignore[no-untyped-call]

    return types.void(target, target_offset, source, source_offset, length), emit_memcpy_call


# copy(target, target_at, source, source_at, length) copies bytes between arrays; numbers are int64. The caller
# ensures that both ranges are valid.
copy: Any = emitted(_memcpy)


@compiled
def spans_fit(window_size: int, positions: Array, lengths: Array, max_length: int) -> bool:
    """Return True if every body lies within `window_size` bytes and is not longer than `max_length`."""
    for row in range(len(positions)):
        position, length = positions[row], lengths[row]
        if position < 0 or length < 0 or length > max_length or position > window_size - length:
            return False
    return True


@compiled
def fill_frame(
    window: Array, positions: Array, lengths: Array, first_row: int, frame: Array, filled_bytes: int, offsets: Array
) -> tuple[int, int]:
    """Copy bodies from the window into the frame, beginning with row `first_row`, until one does not fit.

    Args:
        window: bytes that contain the bodies.
        positions: start of each body, checked by `spans_fit`.
        lengths: length of each body, checked by `spans_fit`.
        first_row: the first body that is not yet in a frame.
        frame: the frame's content; its size is the limit.
        filled_bytes: number of bytes in use.
        offsets: int32 output, start of each body in its frame.

    Returns:
        The first body that did not fit, or the number of bodies; and the new number of bytes in use.
    """
    while first_row < len(positions) and filled_bytes + lengths[first_row] <= len(frame):
        copy(frame, filled_bytes, window, positions[first_row], lengths[first_row])
        offsets[first_row] = filled_bytes
        filled_bytes += lengths[first_row]
        first_row += 1
    return first_row, filled_bytes


@compiled
def copy_from_frame(frame: Array, rows: Array, offsets: Array, lengths: Array, out: Array, out_offsets: Array) -> None:
    """Copy the bodies of the given rows from their frame to `out`; the caller has checked their ends."""
    for row in rows:
        copy(out, np.int64(out_offsets[row]), frame, np.int64(offsets[row]), np.int64(lengths[row]))


@compiled
def find_wrong_crc(data: Array, offsets: Array, expected: Array) -> int:
    """Return the index of the first body whose CRC-32 (top bit cleared) is wrong, or -1; `UNKNOWN_CRC` matches all."""
    for row in range(len(expected)):
        if expected[row] == UNKNOWN_CRC:
            continue
        start = np.int64(offsets[row])
        if np.int64(crc32(data, start, np.int64(offsets[row + 1]) - start)) & 0x7FFFFFFF != expected[row]:
            return row
    return -1
