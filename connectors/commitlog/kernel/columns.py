"""Columns out of a window: fixed fields, repeated strings, copied strings, message ids.

Every function takes the positions of the records wanted; what is not asked for is not looked at.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from connectors.commitlog.kernel.memory import load_be_i32, load_be_i64, load_le_u64


@njit(nogil=True, cache=True)
def gather_i32(window, positions, field_offset, out):
    """out[i] = the int32 at positions[i] + field_offset."""
    for row in range(len(positions)):
        out[row] = load_be_i32(window, positions[row] + field_offset)


@njit(nogil=True, cache=True)
def gather_i64(window, positions, field_offset, scale, out):
    """out[i] = scale * the int64 at positions[i] + field_offset; 1000 turns ms into Arrow's microseconds."""
    for row in range(len(positions)):
        out[row] = load_be_i64(window, positions[row] + field_offset) * scale


@njit(nogil=True, cache=True)
def spans_to_offsets(lengths, offsets):
    """Arrow's n + 1 offsets of values with these lengths; a negative length, null, takes no room."""
    total = 0
    offsets[0] = 0
    for row in range(len(lengths)):
        if lengths[row] > 0:
            total += lengths[row]
        offsets[row + 1] = total
    return total


@njit(nogil=True, cache=True)
def copy_spans(window, positions, lengths, out):
    """The values one behind the other; `out` has room for their sum."""
    target = 0
    for row in range(len(positions)):
        source, length = positions[row], lengths[row]
        for at in range(length):
            out[target + at] = window[source + at]
        if length > 0:
            target += length


@njit(nogil=True, cache=True)
def _hash_span(window, position, length):
    value = np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)
    while length >= 8:
        value = (value ^ load_le_u64(window, position)) * np.uint64(0xFF51AFD7ED558CCD)
        value ^= value >> np.uint64(32)
        position += 8
        length -= 8
    for at in range(position, position + length):
        value = (value ^ np.uint64(window[at])) * np.uint64(0xFF51AFD7ED558CCD)
    return value ^ (value >> np.uint64(29))


@njit(nogil=True, cache=True)
def _equal_spans(window, left, right, length):
    while length >= 8:
        if load_le_u64(window, left) != load_le_u64(window, right):
            return False
        left += 8
        right += 8
        length -= 8
    for at in range(length):  # noqa: SIM110 (numba compiles a loop, not a generator)
        if window[left + at] != window[right + at]:
            return False
    return True


@njit(nogil=True, cache=True)
def intern_spans(window, positions, lengths, table, codes, firsts):
    """Number the distinct values in order of appearance.

    Args:
        window: where the values lie.
        positions: of each value.
        lengths: of each value; a negative one is null and gets the code -1.
        table: int32 scratch, a power of two and at least twice as long as `positions`; all -1, and left all -1.
        codes: int32 out, one for each value.
        firsts: int32 out, the row in which each distinct value appears first.

    Returns:
        How many distinct values there are.
    """
    mask = np.uint64(len(table) - 1)
    distinct = 0
    for row in range(len(positions)):
        position, length = positions[row], lengths[row]
        if length < 0:
            codes[row] = -1
            continue
        if distinct > 0:  # logs come in runs: compare with the value before, and skip the hash
            last = codes[row - 1] if row > 0 else -1
            if last >= 0:
                first = firsts[last]
                if lengths[first] == length and _equal_spans(window, positions[first], position, length):
                    codes[row] = last
                    continue
        slot = _hash_span(window, position, length) & mask
        while True:
            code = table[slot]
            if code < 0:
                table[slot] = distinct
                codes[row] = distinct
                firsts[distinct] = row
                distinct += 1
                break
            first = firsts[code]
            if lengths[first] == length and _equal_spans(window, positions[first], position, length):
                codes[row] = code
                break
            slot = (slot + np.uint64(1)) & mask
    table[:] = -1
    return distinct


@njit(nogil=True, cache=True)
def _write_hex(value, out, at):
    high, low = value >> 4, value & 15
    out[at] = high + (48 if high < 10 else 55)
    out[at + 1] = low + (48 if low < 10 else 55)


@njit(nogil=True, cache=True)
def write_message_ids(window, hosts, host_sizes, starts, physical_offset_field, offsets, out):
    """Offset message ids: hex of store host and physical offset, as `schemas.layouts.message_id` writes it."""
    target = 0
    offsets[0] = 0
    for row in range(len(hosts)):
        for at in range(host_sizes[row]):
            _write_hex(window[hosts[row] + at], out, target)
            target += 2
        for at in range(8):
            _write_hex(window[starts[row] + physical_offset_field + at], out, target)
            target += 2
        offsets[row + 1] = target
