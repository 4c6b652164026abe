"""Runs with a profile, and the stretches of the brokers' logs that they archived."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from commitlake.pipelines.audit.audited_ranges import LogSpan
from commitlake.pipelines.audit.run_counts import RUN_COLUMNS, TAKEN, CountedLogPart, find_counted_part

Run = tuple[int, str, int]
Taken = tuple[str, str, int, int]
R1, R2, R3, R4 = (1, "r1", 5), (2, "r2", 5), (3, "r3", 5), (4, "r4", 5)


def counted(runs: Sequence[Run], taken: Sequence[Taken], *, has_expired: bool = False) -> CountedLogPart | None:
    tables = [pa.Table.from_pylist([dict(zip(TAKEN.names, row, strict=True)) for row in taken], schema=TAKEN)]
    rows = pa.Table.from_pylist([dict(zip(RUN_COLUMNS.names, run, strict=True)) for run in runs], schema=RUN_COLUMNS)
    found = find_counted_part(rows, tables, 4, has_expired=has_expired)
    return found and CountedLogPart(found.runs, found.stretches and sorted(found.stretches))


@pytest.mark.parametrize(
    ("runs", "taken", "expected"),
    [
        ([R1], [("r1", "a", 0, 90)], CountedLogPart(0, None)),
        ([R1, R2], [], None),
        ([], [], CountedLogPart(0, None)),
        # A run that took nothing, and one that came later, need no profile.
        ([R1, (2, "r2", 0), (5, "r5", 7)], [("r1", "a", 0, 90)], CountedLogPart(0, None)),
        (
            [R1, R2, R3, R4],
            [
                ("r1", "a", 0, 90),
                ("r2", "a", 100, 190),
                ("r2", "b", 0, 9),
                ("r4", "a", 300, 390),
                ("r4", "a", 400, 490),
            ],
            CountedLogPart(1, [LogSpan("a", 0, 191), LogSpan("a", 300, 491), LogSpan("b", 0, 10)]),
        ),
    ],
)
def test_stretches_belong_to_the_runs_with_a_profile(
    runs: Sequence[Run], taken: Sequence[Taken], expected: CountedLogPart | None
) -> None:
    assert counted(runs, taken) == expected


def test_a_run_with_an_expired_row_counts_as_the_oldest() -> None:
    taken = [("r0", "a", 0, 90), ("r2", "a", 200, 290)]
    assert counted([R2], taken, has_expired=True) == CountedLogPart(0, [LogSpan("a", 0, 291)])
    assert counted([R1, R2], taken, has_expired=True) == CountedLogPart(
        1, [LogSpan("a", 0, 91), LogSpan("a", 200, 291)]
    )
