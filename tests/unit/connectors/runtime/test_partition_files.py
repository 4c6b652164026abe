"""Rows are divided into parts, written to disk or packed, and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from commitlake.connectors.runtime.partition_files import (
    divide_rows,
    pack_rows,
    partition_count,
    read_partition,
    unpack_rows,
    write_partitions,
)

ROWS = pa.table({"name": ["a", None, "b", "a", "c"], "number": [1, 2, 3, 4, 5]})
NUMBERS = np.array([3, 0, 3, 1, 0])
PARTS = [[2, 5], [4], [], [1, 3]]


def test_each_row_is_read_back_in_its_part(tmp_path: Path) -> None:
    paths = [write_partitions(ROWS, NUMBERS, len(PARTS), tmp_path) for _ in range(2)]
    for number, expected in enumerate(PARTS):
        for part in read_partition(paths, number):
            assert part.schema == ROWS.schema
            assert part.column("number").to_pylist() == expected


def test_parts_without_rows_take_no_space(tmp_path: Path) -> None:
    rows = pa.table({"name": [f"name {number}" for number in range(10_000)], "number": range(10_000)})
    numbers = np.zeros(10_000, np.int64)
    one, many = (write_partitions(rows, numbers, count, tmp_path).stat().st_size for count in (1, 50))
    assert many < 2 * one


def test_packed_rows_are_unpacked() -> None:
    parts = list(divide_rows(ROWS, NUMBERS, len(PARTS)))
    packed = pa.array([None if part is None else pack_rows(part) for part in parts], pa.binary())
    found = [unpack_rows(data).column("number").to_pylist() if data.is_valid else [] for data in packed]
    assert found == PARTS


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (20_000, 1), (1_000_000, 50), (12_800_000, 64), (1 << 30, 5368)])
def test_the_number_of_parts_grows_with_the_rows(rows: int, count: int) -> None:
    assert partition_count(rows) == count
