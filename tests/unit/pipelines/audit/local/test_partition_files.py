"""Rows are written to disk in partitions, and read from them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.pipelines.audit.local.partition_files import (
    partition_count,
    partition_numbers,
    read_partition,
    write_partitions,
)


def test_each_row_is_read_back_in_its_partition(tmp_path: Path) -> None:
    rows = pa.table({"name": ["a", None, "b", "a", "c"], "number": [1, 2, 3, 4, 5]})
    numbers = partition_numbers(rows, ["name"], 3)
    paths = [write_partitions(rows, numbers, 3, tmp_path) for _ in range(2)]
    read = [pa.concat_tables(read_partition(paths, number)) for number in range(3)]
    assert sum(part.num_rows for part in read) == 10
    for number, part in enumerate(read):
        assert (partition_numbers(part.combine_chunks(), ["name"], 3) == number).all()
    assert sorted(pa.concat_tables(read).column("number").to_pylist()) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


@pytest.mark.parametrize(("rows", "count"), [(0, 1), (20_000, 1), (1_000_000, 50), (12_800_000, 64), (1 << 30, 5368)])
def test_the_number_of_partitions_grows_with_the_rows(rows: int, count: int) -> None:
    assert partition_count(rows) == count
