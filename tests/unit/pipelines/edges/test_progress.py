"""The audit's count finds records without a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.table_checks import compare_edges
from commitlake.pipelines.edges.table_update import follow_edges
from tests.support.lakes import GrowingLake
from tests.support.message_families import Family, dead, delayed, delivered, failed, given_up, half, op, record


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """A lake with records of each kind that has steps in `edges`."""
    family = Family(GrowingLake(tmp_path), [])
    family.write(record("U1"), *failed("U1", 1, 0, 1), dead("U1", 2, 0, 20), delayed(None), delivered("U9", 30))
    family.write(half("T1"), half("T2", 1), half("T2", 9, 1), given_up("T2", 12), op([0], 13), delayed("U2", 14))
    family.growing.archive()
    return family


def test_a_table_with_all_steps_has_no_finding(family: Family) -> None:
    lake = family.growing.lake
    assert compare_edges(lake, read_lake_state(lake)) == ([], "")
    follow_edges(lake)
    assert compare_edges(lake, read_lake_state(lake)) == ([], "")


@pytest.mark.parametrize("kind", ["dead", "delayed", "rechecked", "finished"])
def test_a_step_that_is_missing_is_found(family: Family, kind: str) -> None:
    lake = family.growing.lake
    follow_edges(lake)
    DeltaTable(lake.uri("edges")).delete(f"kind = '{kind}'")
    (finding,), note = compare_edges(lake, read_lake_state(lake))
    assert (finding.table, finding.count, note) == ("edges", 1, "")


def test_a_table_that_is_behind_is_not_compared(family: Family) -> None:
    lake = family.growing.lake
    follow_edges(lake)
    family.write(record("U3", seconds=40))
    family.growing.archive()
    findings, note = compare_edges(lake, read_lake_state(lake))
    assert not findings
    assert "it follows messages only to version" in note


def test_a_store_time_that_fits_no_timestamp_is_no_finding(family: Family) -> None:
    lake = family.growing.lake
    family.growing.write([dead("U4", 2, 0, 30), half("T4", 31), delayed("U4", 32)], lambda _: 1 << 62)
    family.growing.archive()
    follow_edges(lake)
    assert compare_edges(lake, read_lake_state(lake)) == ([], "")
