"""Numbers as decimal text."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel.compile_options import compiled

_MINUS, _ZERO = np.uint8(ord("-")), np.uint8(ord("0"))
# Unsigned, because numba, like numpy, computes with a uint64 and an int64 in floating point.
_TEN = np.uint64(10)


@compiled
def write_unsigned(value, out, out_position):
    """Write a uint64 as decimal digits, and return the position in `out` after them."""
    digits = 1
    rest = value // _TEN
    while rest != 0:
        digits += 1
        rest //= _TEN
    end = out_position + digits
    at = end
    while at > out_position:
        at -= 1
        tenth = value // _TEN
        out[at] = _ZERO + np.uint8(value - tenth * _TEN)
        value = tenth
    return end


@compiled
def write_signed(value, out, out_position):
    """Write an int64 as decimal digits, with a sign if negative, and return the position in `out` after them."""
    if value < 0:
        out[out_position] = _MINUS
        # Negated as an unsigned number, because the smallest int64 has no positive counterpart.
        return write_unsigned(~np.uint64(value) + np.uint64(1), out, out_position + 1)
    return write_unsigned(np.uint64(value), out, out_position)
