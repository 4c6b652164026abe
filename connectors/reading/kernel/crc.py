"""CRC-32 (IEEE, reflected, as in zlib) of bytes in a window.

On x86 with carry-less multiply the bytes are folded as V. Gopal et al. describe it ("Fast CRC Computation for Generic
Polynomials Using PCLMULQDQ Instruction", 2009), see `crc_folding`: 256 bytes a step if the processor multiplies vectors
of 512 bits, else 64. Ranges shorter than a block, and all ranges on other processors, are computed with tables, eight
bytes a step. The choice is made once, at import.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
import numpy as np

from commitlake.connectors.reading.kernel.compile_options import compiled
from commitlake.connectors.reading.kernel.crc_folding import BLOCK_SIZE, POLYNOMIAL, fold_crc_narrow, fold_crc_wide
from commitlake.connectors.reading.kernel.memory_access import load_le_u64

_FEATURES = llvm.get_host_cpu_features()
HAS_CARRY_LESS_MULTIPLY = bool(_FEATURES.get("pclmul", False))
HAS_WIDE_MULTIPLY = all(_FEATURES.get(name, False) for name in ("pclmul", "vpclmulqdq", "avx512f"))


def _make_tables() -> np.ndarray[Any, np.dtype[np.uint32]]:
    tables = np.zeros((8, 256), np.uint32)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for table in range(1, 8):
        previous = tables[table - 1]
        tables[table] = (previous >> 8) ^ tables[0][previous & 0xFF]
    return tables


_TABLES = _make_tables()


@compiled
def _crc_by_table(window, position, length, crc_state):
    """Continue a CRC, given as inverted `crc_state`, over bytes of a window, eight per step."""
    crc = np.uint64(crc_state)
    end = position + length
    while end - position >= 8:
        word = load_le_u64(window, position) ^ crc
        crc = np.uint64(
            _TABLES[7, word & np.uint64(0xFF)]
            ^ _TABLES[6, (word >> np.uint64(8)) & np.uint64(0xFF)]
            ^ _TABLES[5, (word >> np.uint64(16)) & np.uint64(0xFF)]
            ^ _TABLES[4, (word >> np.uint64(24)) & np.uint64(0xFF)]
            ^ _TABLES[3, (word >> np.uint64(32)) & np.uint64(0xFF)]
            ^ _TABLES[2, (word >> np.uint64(40)) & np.uint64(0xFF)]
            ^ _TABLES[1, (word >> np.uint64(48)) & np.uint64(0xFF)]
            ^ _TABLES[0, word >> np.uint64(56)]
        )
        position += 8
    while position < end:
        crc = np.uint64(_TABLES[0, (crc ^ np.uint64(window[position])) & np.uint64(0xFF)]) ^ (crc >> np.uint64(8))
        position += 1
    return crc


@compiled
def _crc_by_narrow_vectors(window, position, length, crc_state):
    if length >= BLOCK_SIZE:
        return fold_crc_narrow(window, position, length, crc_state)
    return _crc_by_table(window, position, length, crc_state)


@compiled
def _crc_by_wide_vectors(window, position, length, crc_state):
    if length >= BLOCK_SIZE:
        return fold_crc_wide(window, position, length, crc_state)
    return _crc_by_table(window, position, length, crc_state)


_crc = (
    _crc_by_wide_vectors if HAS_WIDE_MULTIPLY else _crc_by_narrow_vectors if HAS_CARRY_LESS_MULTIPLY else _crc_by_table
)


_START = np.uint64(0xFFFFFFFF)


@compiled
def crc32(window, position, length):
    """Return zlib's CRC-32 of `length` bytes from `position`, as an unsigned 64-bit integer."""
    return _crc(window, position, length, _START) ^ _START


@compiled
def crc32_without_hole(window, position, hole_position, hole_length, length):
    """Return the CRC-32 of `length` bytes from `position`, without the `hole_length` of them at `hole_position`."""
    state = _crc(window, position, hole_position - position, _START)
    after = hole_position + hole_length
    return _crc(window, after, position + length - after, state) ^ _START
