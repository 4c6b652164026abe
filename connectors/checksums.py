"""CRC-32 of ranges of a file, and of joined ranges, computed from the CRC-32 of each."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from functools import lru_cache

from commitlake.schemas.shipped_manifest import Part

_POLYNOMIAL = 0xEDB88320
_BITS = 32
_BLOCK_BYTES = 1 << 20
_Matrix = tuple[int, ...]


def crc_of_range(descriptor: int, offset: int, size: int) -> int | None:
    """Return the CRC-32 of a range of an open file, or None if the file ends before the range's end."""
    crc = 0
    while size:
        data = os.pread(descriptor, min(size, _BLOCK_BYTES), offset)
        if not data:
            return None
        crc = zlib.crc32(data, crc)
        offset, size = offset + len(data), size - len(data)
    return crc


def crc_of_parts(parts: Iterable[Part]) -> int:
    """Return the CRC-32 of the concatenation of consecutive parts, from the CRC-32 and size of each."""
    crc = 0
    for part in parts:
        crc = combine_crcs(crc, part.crc, part.size)
    return crc


def combine_crcs(first_crc: int, second_crc: int, second_size: int) -> int:
    """Return the CRC-32 of two consecutive ranges as a whole, from the CRC-32 of each.

    This is zlib's `crc32_combine`, which Python does not have: appending a zero byte to a range is a linear function of
    its CRC, so appending n of them is a product of powers of a matrix over GF(2).

    Args:
        first_crc: CRC-32 of the first range.
        second_crc: CRC-32 of the second range.
        second_size: number of bytes of the second range.
    """
    power = 0
    while second_size:
        if second_size & 1:
            first_crc = _multiply_vector(_crc_matrix_of_zero_bytes(power), first_crc)
        second_size >>= 1
        power += 1
    return first_crc ^ second_crc


@lru_cache(maxsize=64)
def _crc_matrix_of_zero_bytes(log2_size: int) -> _Matrix:
    """Return the matrix that computes a CRC-32 after 2^`log2_size` zero bytes are appended."""
    if log2_size:
        return _square_matrix(_crc_matrix_of_zero_bytes(log2_size - 1))
    one_bit = (_POLYNOMIAL, *(1 << bit for bit in range(_BITS - 1)))
    return _square_matrix(_square_matrix(_square_matrix(one_bit)))


def _multiply_vector(matrix: _Matrix, vector: int) -> int:
    total = 0
    for column in matrix:
        if not vector:
            break
        if vector & 1:
            total ^= column
        vector >>= 1
    return total


def _square_matrix(matrix: _Matrix) -> _Matrix:
    return tuple(_multiply_vector(matrix, column) for column in matrix)
