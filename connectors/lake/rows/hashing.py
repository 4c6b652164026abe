"""Compiled functions for the hash `xxhash64` of Spark: of strings, of lists of strings, and of rows of numbers.

XXH64 by Y. Collet. Spark hashes a string as its bytes, a bigint as eight bytes, and a list element by element, with the
hash of one element as seed of the next; the first seed is 42. (Source: org.apache.spark.sql.catalyst.expressions.XXH64,
4.2.0: hashLong, hashUnsafeBytes.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlake.connectors.arrays_without_pandas import string_bytes_and_offsets
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.memory_access import load_le_u64

Hashes = npt.NDArray[np.int64]

SEED = 42
_SEED = np.uint64(SEED)
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_STRIPE = 32  # bytes that the four lanes take at a time


@compiled
def _rotate_left(value: Any, bits: Any) -> Any:
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@compiled
def _mix_lane(lane: Any, word: Any) -> Any:
    return _rotate_left(lane + word * _PRIME_2, 31) * _PRIME_1


@compiled
def _merge_lane(hash_value: Any, lane: Any) -> Any:
    return (hash_value ^ _mix_lane(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@compiled
def _finish_hash(hash_value: Any) -> Any:
    hash_value = (hash_value ^ (hash_value >> np.uint64(33))) * _PRIME_2
    hash_value = (hash_value ^ (hash_value >> np.uint64(29))) * _PRIME_3
    return hash_value ^ (hash_value >> np.uint64(32))


@compiled
def hash_long(value: Any, seed: Any) -> Any:
    """Return the hash of a bigint; called by other compiled functions."""
    hashed = (seed + _PRIME_5 + np.uint64(8)) ^ _mix_lane(np.uint64(0), np.uint64(value))
    return _finish_hash(_rotate_left(hashed, 27) * _PRIME_1 + _PRIME_4)


@compiled
def _hash_bytes(data: Any, position: Any, length: Any, seed: Any) -> Any:
    end = position + length
    if length >= _STRIPE:
        one, two, three, four = seed + _PRIME_1 + _PRIME_2, seed + _PRIME_2, seed + np.uint64(0), seed - _PRIME_1
        while end - position >= _STRIPE:
            one = _mix_lane(one, load_le_u64(data, position))
            two = _mix_lane(two, load_le_u64(data, position + 8))
            three = _mix_lane(three, load_le_u64(data, position + 16))
            four = _mix_lane(four, load_le_u64(data, position + 24))
            position += _STRIPE
        hashed = _rotate_left(one, 1) + _rotate_left(two, 7) + _rotate_left(three, 12) + _rotate_left(four, 18)
        hashed = _merge_lane(_merge_lane(_merge_lane(_merge_lane(hashed, one), two), three), four)
    else:
        hashed = seed + _PRIME_5
    hashed += np.uint64(length)
    while end - position >= 8:
        hashed = _rotate_left(hashed ^ _mix_lane(np.uint64(0), load_le_u64(data, position)), 27) * _PRIME_1 + _PRIME_4
        position += 8
    if end - position >= 4:
        word = np.uint64(0)
        for byte in range(4):
            word |= np.uint64(data[position + byte]) << np.uint64(8 * byte)
        hashed = _rotate_left(hashed ^ (word * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        position += 4
    while position < end:
        hashed = _rotate_left(hashed ^ (np.uint64(data[position]) * _PRIME_5), 11) * _PRIME_1
        position += 1
    return _finish_hash(hashed)


@compiled
def hash_texts(data: Array, offsets: Array, out: Hashes) -> None:
    """Write the hash of each text to `out`.

    Args:
        data: uint8, the concatenated strings.
        offsets: int32, start of each string, and end of the last one.
        out: receives a hash for each string.
    """
    for row in range(len(out)):
        first = np.int64(offsets[row])
        out[row] = np.int64(_hash_bytes(data, first, np.int64(offsets[row + 1]) - first, _SEED))


@compiled
def hash_lists(list_offsets: Array, data: Array, text_offsets: Array, indices: Array, out: Hashes) -> None:
    """Write the hash of each list of texts to `out`.

    Args:
        list_offsets: int32, start of each list among the elements, and end of the last one.
        data: uint8, the concatenated strings.
        text_offsets: int32, start of each string, and end of the last one.
        indices: int32, index of each element's string; empty if elements and strings have the same indexes.
        out: receives a hash for each list.
    """
    encoded = len(indices) > 0
    for row in range(len(out)):
        hashed = _SEED
        for element in range(np.int64(list_offsets[row]), np.int64(list_offsets[row + 1])):
            text = np.int64(indices[element]) if encoded else element
            first = np.int64(text_offsets[text])
            hashed = _hash_bytes(data, first, np.int64(text_offsets[text + 1]) - first, hashed)
        out[row] = np.int64(hashed)


@compiled
def update_row_hashes(values: Hashes, hashes: Hashes) -> None:
    """Update each row's hash with one more number, as Spark's `xxhash64` does for a row's next column.

    Args:
        values: a number for each row.
        hashes: in and out; `SEED` before the first number.
    """
    for row in range(len(hashes)):
        hashes[row] = np.int64(hash_long(values[row], np.uint64(hashes[row])))


def hash_strings(texts: pa.Array) -> Hashes:
    """Return the hash of each value of an array of strings or binaries, whose Arrow offsets have 32 bits."""
    hashes = np.empty(len(texts), np.int64)
    data, offsets = string_bytes_and_offsets(texts)
    hash_texts(data, offsets, hashes)
    return hashes
