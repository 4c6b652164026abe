"""Parts of a log and their groups have sizes that suit tasks."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from commitlake.connectors.reading.partition_sizes import choose_part_size, compute_read_costs, group_by_size


@dataclass(frozen=True)
class Part:
    """A part of a file."""

    size: int


@pytest.mark.parametrize(
    ("size", "cores", "expected"),
    [(0, 2, 64), (100 << 20, 2, 64), (1 << 30, 2, 256), (1 << 30, 4, 128), (1 << 30, 64, 64), (1 << 37, 8, 256)],
)
def test_there_are_two_parts_for_each_core_within_bounds(size: int, cores: int, expected: int) -> None:
    assert choose_part_size(size, cores) == expected << 20


def test_segments_of_large_logs_are_not_divided() -> None:
    assert choose_part_size(1 << 40, 8) == 1 << 30
    assert choose_part_size(10 << 40, 1000) > 1 << 30


def test_parts_are_multiples_of_a_unit() -> None:
    assert choose_part_size(1 << 30, 4, multiple_of=3 << 20, min_size=3 << 20) == 129 << 20
    assert choose_part_size(100, 1, multiple_of=32, min_size=32) == 64


def test_parts_are_grouped_by_bytes_and_files() -> None:
    parts = [Part(400_000), Part(400_000), Part(10), Part(3_000_000), Part(0)]
    sizes = [[part.size for part in group] for group in group_by_size(parts, compute_read_costs(parts), 1_500_000)]
    assert sizes == [[400_000, 400_000], [10], [3_000_000], [0]]
    assert group_by_size([], [], 1) == []
