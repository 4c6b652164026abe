"""The CRC agrees with zlib's at every length, by carry-less multiply and by tables."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from commitlake.connectors.reading.kernel import crc

DATA = np.frombuffer(np.random.default_rng(1).bytes(1 << 16), np.uint8)


@pytest.mark.parametrize("position", [0, 1, 7, 16])
def test_crc_equals_zlibs_at_every_length(position: int) -> None:
    for length in [*range(700), 4096, 65519]:
        expected = zlib.crc32(DATA[position : position + length].tobytes())
        assert crc.crc32(DATA, position, min(length, len(DATA) - position)) == expected


@pytest.mark.parametrize("function", [crc._crc_by_table, crc._crc], ids=["tables", "chosen"])
def test_carry_less_multiply_and_tables_agree(function: object) -> None:
    for length in [*range(200), 1000, 4095]:
        state = function(DATA, 3, length, np.uint64(0xFFFFFFFF))  # type: ignore[operator]
        assert int(state) ^ 0xFFFFFFFF == zlib.crc32(DATA[3 : 3 + length].tobytes())


@pytest.mark.parametrize("byte", [0x00, 0xFF])
def test_crc_of_repeated_bytes_equals_zlibs(byte: int) -> None:
    data = np.full(1000, byte, np.uint8)
    assert crc.crc32(data, 0, 1000) == zlib.crc32(data.tobytes())
