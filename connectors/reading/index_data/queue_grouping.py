"""Compiled grouping of rows by queue, in which a queue's rows stay in the order of the log.

All called functions are in this file, because numba checks only the time of this file before it uses compiled code.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled


@compiled
def number_keys(keys: Array, hash_table: Array, distinct_keys: Array, out_key_numbers: Array) -> int:
    """Number the distinct keys in order of appearance, write each row's number, and return how many numbers there are.

    Args:
        keys: int64.
        hash_table: int32 zeros, a power of two long and at least twice as long as `keys`.
        distinct_keys: int64 out, with room for every key.
        out_key_numbers: int32 out, each key's number.
    """
    mask = np.uint64(len(hash_table) - 1)
    count = 0
    likely = -1
    for row in range(len(keys)):
        key = keys[row]
        if likely >= 0 and distinct_keys[likely] == key:
            out_key_numbers[row] = likely
            continue
        word = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
        slot = (word >> np.uint64(29)) & mask
        while True:
            found = hash_table[slot] - 1
            if found < 0:
                found = count
                distinct_keys[count] = key
                count += 1
                hash_table[slot] = count
                break
            if distinct_keys[found] == key:
                break
            slot = (slot + np.uint64(1)) & mask
        likely = found
        out_key_numbers[row] = found
    return count


@compiled
def sort_rows_by_group(group_numbers: Array, group_starts: Array, sorted_rows: Array) -> None:
    """Sort rows by group number with a stable sort, into the output array `sorted_rows`.

    Args:
        group_numbers: int32, from 0 to len(starts) - 2.
        group_starts: int64 zeros; out, start of each number's rows in `sorted_rows`, and the end of the last.
        sorted_rows: int64 out, the rows.
    """
    for row in range(len(group_numbers)):
        group_starts[group_numbers[row] + 1] += 1
    for number in range(1, len(group_starts)):
        group_starts[number] += group_starts[number - 1]
    for row in range(len(group_numbers)):
        sorted_rows[group_starts[group_numbers[row]]] = row
        group_starts[group_numbers[row]] += 1
    for number in range(len(group_starts) - 1, 0, -1):
        group_starts[number] = group_starts[number - 1]
    group_starts[0] = 0
