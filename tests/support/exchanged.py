"""An exchange of rows between tasks and parts, for the tests of each runner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.integer_parsing import require_int

PARTS = 5
TASKS = [*range(20)]
SUMS = sorted(
    (part, sum(range(part, 10, PARTS)) * len(TASKS) + len(range(part, 10, PARTS)) * 100 * sum(TASKS))
    for part in range(PARTS - 1)
)
"""Each part, and the sum of its rows; the last part has none."""


def divide(task: int) -> Iterator[tuple[pa.Table, Array]]:
    """Yield ten rows of a task in two tables, without those of the last part; and a table without rows."""
    for numbers in (np.arange(7), np.arange(7, 10), np.arange(0)):
        kept = numbers[numbers % PARTS != PARTS - 1]
        rows = {"part": kept % PARTS, "number": kept + 100 * task, "text": [f"row {number}" for number in kept]}
        yield (
            pa.table(rows, pa.schema([("part", pa.int64()), ("number", pa.int64()), ("text", pa.string())])),
            (kept % PARTS),
        )


def sum_part(tables: Sequence[pa.Table]) -> tuple[int, int]:
    """Return the number of a part, and the sum of its rows."""
    rows = pa.concat_tables(tables)
    assert all(table.num_rows for table in tables)
    (part,) = set(rows.column("part").to_pylist())
    return part, sum(rows.column("number").to_pylist())


def fail_to_divide(_: int) -> Iterator[tuple[pa.Table, Array]]:
    """Raise an error."""
    require_int("x", "number", 0, 9)
    yield from ()


def fail_to_combine(_: Sequence[pa.Table]) -> int:
    """Raise an error."""
    return require_int("x", "number", 0, 9)
