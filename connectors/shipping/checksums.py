"""CRC-32 of joined ranges, from the CRC-32s of the ranges."""

from __future__ import annotations

from functools import lru_cache

_POLYNOMIAL = 0xEDB88320
_BITS = 32
_Matrix = tuple[int, ...]


def combine_crcs(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32 of two ranges that follow each other.

    This is zlib's `crc32_combine`, which Python does not have: appending a zero byte to a range is a linear function of
    its CRC, so appending n of them is a product of powers of a matrix over GF(2).

    Args:
        first: CRC-32 of the first range.
        second: CRC-32 of the second range.
        second_size: number of bytes of the second range.
    """
    power = 0
    while second_size:
        if second_size & 1:
            first = _times(_zero_bytes(power), first)
        second_size >>= 1
        power += 1
    return first ^ second


@lru_cache(maxsize=64)
def _zero_bytes(power: int) -> _Matrix:
    """Return the matrix that appends 2^power zero bytes."""
    if power:
        return _squared(_zero_bytes(power - 1))
    one_bit = (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))
    return _squared(_squared(_squared(one_bit)))


def _times(matrix: _Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            total ^= column
        vector >>= 1
    return total


def _squared(matrix: _Matrix) -> _Matrix:
    return tuple(_times(matrix, column) for column in matrix)
