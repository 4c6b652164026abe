"""Ranges that a run could not read, grouped and counted, with the first rows of each group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.committer import append_rows
from commitlake.pipelines.archive.quarantine_rows import SAMPLE_ROWS, read_refused_ranges
from commitlake.schemas.tables.archive_runs import GAPS, QUARANTINE
from commitlake.schemas.tables.columns import Columns
from tests.support.lakes import GrowingLake, shop_messages

REASONS = {"magic": 143, "body_crc": 2, "it's": 4}


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> GrowingLake:
    """A lake with rows of two runs in `quarantine`, and of one in `gaps`."""
    growing = GrowingLake(tmp_path_factory.mktemp("refused"))
    growing.write(shop_messages(3))
    growing.archive()
    rows = [
        {"broker": "a", "segment": "0", "start_offset": 1000 - number, "end_offset": 1010 - number, "reason": reason,
         "expected": "x", "found": "y", "first_bytes": b"\x00", "run_id": run_id}
        for run_id in ("one", "other")
        for reason, count in REASONS.items()
        for number in range(count if run_id == "one" else 1)
    ]  # fmt: skip
    append_rows(growing.lake, "quarantine", table_of(rows, QUARANTINE))
    gaps = [{"broker": "a", "segment": "0", "start_offset": 0, "end_offset": 500, "found": "none", "run_id": "one"}]
    append_rows(growing.lake, "gaps", table_of(gaps, GAPS))
    return growing


def table_of(rows: Sequence[Mapping[str, object]], schema: Columns) -> pa.Table:
    """Return the rows of a table; columns that are not given are null."""
    return pa.Table.from_pylist(list(rows), schema=arrow_schema(schema))


def test_rows_are_counted_by_reason_the_most_frequent_first(growing: GrowingLake) -> None:
    groups = read_refused_ranges(growing.lake, ["one"])
    assert [(group.table, group.reason, group.count, group.bytes) for group in groups] == [
        ("quarantine", "magic", 143, 1430),
        ("quarantine", "it's", 4, 40),
        ("quarantine", "body_crc", 2, 20),
        ("gaps", "", 1, 500),
    ]


def test_the_first_rows_are_those_with_the_smallest_offsets(growing: GrowingLake) -> None:
    group = read_refused_ranges(growing.lake, ["one"])[0]
    assert [row["start_offset"] for row in group.first] == [858, 859, 860]
    assert len(group.first) == SAMPLE_ROWS
    assert {row["run_id"] for row in group.first} == {"one"}


def test_ranges_of_other_runs_are_not_counted(growing: GrowingLake) -> None:
    assert [group.count for group in read_refused_ranges(growing.lake, ["other"])] == [1, 1, 1]
    assert read_refused_ranges(growing.lake, ["none"]) == []


def test_a_lake_without_the_tables_has_no_refused_ranges(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(1))
    growing.archive()
    assert read_refused_ranges(growing.lake, ["one"]) == []
