"""Columns of one value are made once, and are as long as their batches."""

from __future__ import annotations

import pyarrow as pa
import pytest

from commitlake.connectors.reading.decoding import arrow


@pytest.mark.parametrize("encoded", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 1000, 1 << 14])
def test_a_string_is_in_every_row(rows: int, *, encoded: bool) -> None:
    column = arrow.constant_array("brücke", rows, as_dictionary=encoded)
    assert column.to_pylist() == ["brücke"] * rows
    assert pa.types.is_dictionary(column.type) == encoded
    column.validate(full=True)


def test_batches_share_one_array() -> None:
    first, second = (arrow.constant_array("b", rows, as_dictionary=False) for rows in (900, 1000))
    assert [buffer and buffer.address for buffer in first.buffers()] == [
        buffer and buffer.address for buffer in second.buffers()
    ]


def test_other_texts_have_other_arrays() -> None:
    assert arrow.constant_array("a", 2, as_dictionary=False).to_pylist() == ["a", "a"]
    assert arrow.constant_array("b", 2, as_dictionary=False).to_pylist() == ["b", "b"]
