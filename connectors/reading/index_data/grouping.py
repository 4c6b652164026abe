"""Compiled grouping of rows by queue, in which a queue's rows stay in the order of the log.

All called functions are in this file, because numba checks only the time of this file before it uses compiled code.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.arrays import Array
from commitlake.connectors.reading.kernel.compiled import compiled


@compiled
def number_keys(keys: Array, table: Array, distinct: Array, numbers: Array) -> int:
    """Number the distinct keys of rows in order of appearance, and return the count of distinct keys.

    Args:
        keys: int64.
        table: int32 zeros, a power of two long and at least twice as long as `keys`.
        distinct: int64 out, with room for every key.
        numbers: int32 out, each key's number.
    """
    mask = np.uint64(len(table) - 1)
    count = 0
    likely = -1
    for row in range(len(keys)):
        key = keys[row]
        if likely >= 0 and distinct[likely] == key:
            numbers[row] = likely
            continue
        word = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
        slot = (word >> np.uint64(29)) & mask
        while True:
            found = table[slot] - 1
            if found < 0:
                found = count
                distinct[count] = key
                count += 1
                table[slot] = count
                break
            if distinct[found] == key:
                break
            slot = (slot + np.uint64(1)) & mask
        likely = found
        numbers[row] = found
    return count


@compiled
def sort_rows_by_group(numbers: Array, starts: Array, order: Array) -> None:
    """Sort rows by group number with a stable sort, into the output array `order`.

    Args:
        numbers: int32, from 0 to len(starts) - 2.
        starts: int64 zeros; out, start of each number's rows in `order`, and the end of the last.
        order: int64 out, the rows.
    """
    for row in range(len(numbers)):
        starts[numbers[row] + 1] += 1
    for number in range(1, len(starts)):
        starts[number] += starts[number - 1]
    for row in range(len(numbers)):
        order[starts[numbers[row]]] = row
        starts[numbers[row]] += 1
    for number in range(len(starts) - 1, 0, -1):
        starts[number] = starts[number - 1]
    starts[0] = 0
