"""Copying, comparing and numbering of strings in a window.

Windows and outputs have the padding that `memory_access` requires.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.reading.kernel.compile_options import compiled, inlined
from commitlake.connectors.reading.kernel.memory_access import OVERWRITE, copy_32_bytes, load_le_u64

# Rows of `counts`, of an interner.
DISTINCT = 0  # number of values
TEXT_END = 1  # used bytes of `texts`


@inlined
def copy_span(window, position, length, out, out_position):
    """Copy one value; up to OVERWRITE bytes after it are overwritten."""
    done = 0
    while done < length:
        copy_32_bytes(window, position + done, out, out_position + done)
        done += OVERWRITE


@compiled
def spans_to_offsets(lengths, out_offsets):
    """Compute Arrow's n + 1 offsets from the values' lengths; a negative length, for null, counts as 0."""
    total = 0
    out_offsets[0] = 0
    for row in range(len(lengths)):
        if lengths[row] > 0:
            total += lengths[row]
        out_offsets[row + 1] = total
    return total


@compiled
def copy_spans(window, positions, lengths, out):
    """Copy values one after another; `out` has room for their sum, and OVERWRITE bytes more."""
    target = 0
    for row in range(len(positions)):
        length = lengths[row]
        if length > 0:
            copy_span(window, positions[row], length, out, target)
            target += length


@inlined
def _last_bytes(window, position, length):
    """Return the last bytes of a value, at most 8, as a 64-bit word, filled up with zeros."""
    # Without a branch. The caller excludes a length of 0, for which the shift would be undefined.
    return load_le_u64(window, position) & (~np.uint64(0) >> np.uint64(8 * (8 - length)))


@inlined
def hash_span(window, position, length, seed):
    """Return a 64-bit hash of a value, unpredictable without the seed."""
    value = (np.uint64(length) * np.uint64(0x9E3779B97F4A7C15)) ^ seed
    while length > 8:
        value = (value ^ load_le_u64(window, position)) * np.uint64(0xFF51AFD7ED558CCD)
        value ^= value >> np.uint64(32)
        position += 8
        length -= 8
    if length > 0:
        value = (value ^ _last_bytes(window, position, length)) * np.uint64(0xFF51AFD7ED558CCD)
    return value ^ (value >> np.uint64(29))


@inlined
def equal_spans(window, position, texts, start, length):
    """Return whether a value in the window and one in `texts`, of the same length, are equal."""
    while length > 8:
        if load_le_u64(window, position) != load_le_u64(texts, start):
            return False
        position += 8
        start += 8
        length -= 8
    return length == 0 or _last_bytes(window, position, length) == _last_bytes(texts, start, length)


@inlined
def intern_span(window, position, length, seed, likely_number, counts, table, starts, texts):
    """Return the number of a value among the distinct values so far; a new value gets the next number.

    Args:
        window: bytes that contain the value.
        position: position of the value.
        length: size of the value, bytes.
        seed: seed of the hash.
        likely_number: an existing number that is tried first, or -1.
        counts: int64[2], see DISTINCT and TEXT_END.
        table: int32, a power of two long and never more than half full; 1 + the number, 0 where free.
        starts: int64, start of each value in `texts`, and the end of the last; there is room for one more.
        texts: the values; there is room for this one.
    """
    # Neighbouring records mostly have the same value: a comparison is cheaper than a hash.
    if likely_number >= 0 and starts[likely_number + 1] - starts[likely_number] == length:  # noqa: SIM102
        if equal_spans(window, position, texts, starts[likely_number], length):
            return likely_number
    mask = np.uint64(len(table) - 1)
    slot = hash_span(window, position, length, seed) & mask
    while True:
        code = np.int64(table[slot]) - 1
        if code < 0:
            break
        if starts[code + 1] - starts[code] == length and equal_spans(window, position, texts, starts[code], length):
            return code
        slot = (slot + np.uint64(1)) & mask
    code = counts[DISTINCT]
    # Numbers are stored plus one, so that untouched memory, which is zero, is an empty slot.
    table[slot] = code + 1
    end = counts[TEXT_END]
    copy_span(window, position, length, texts, end)
    starts[code + 1] = end + length
    counts[DISTINCT] = code + 1
    counts[TEXT_END] = end + length
    return code


@compiled
def size_of_expanded_codes(codes, value_offsets):
    """Return the total size of the values with the given numbers; number -1 stands for null."""
    total = 0
    for row in range(len(codes)):
        code = codes[row]
        if code >= 0:
            total += value_offsets[code + 1] - value_offsets[code]
    return total


@compiled
def expand_codes(codes, value_offsets, values, out_offsets, out):
    """Write the values with the given numbers one after another, with their Arrow offsets; -1 stands for null.

    `values` has PADDING bytes, `out` OVERWRITE bytes more than count.
    """
    target = 0
    out_offsets[0] = 0
    for row in range(len(codes)):
        code = codes[row]
        if code >= 0:
            begin = value_offsets[code]
            length = value_offsets[code + 1] - begin
            copy_span(values, begin, length, out, target)
            target += length
        out_offsets[row + 1] = target
