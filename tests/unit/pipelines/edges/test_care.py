"""`edges` has the same rows after compaction, erasure and rebuilding, also for steps that are still open."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.edges.progress import is_open_steps_file
from commitlake.pipelines.edges.table_update import follow_edges
from commitlake.pipelines.erasure.run import ErasureTarget, plan_erasure, run_erasure
from commitlake.pipelines.erasure.selection import KeysToErase
from commitlake.pipelines.maintenance.compaction import compact_table, plan_compaction
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from tests.support.lakes import GrowingLake
from tests.support.message_families import (
    Family,
    Step,
    begun,
    committed,
    delayed,
    delivered,
    ended,
    failed,
    half,
    op,
    pub,
    record,
    trace,
)
from tests.support.table_damages import damage

FIRST = [
    ("delayed", 0, 1, None, None),  # "U1"
    ("delayed", 2, None, "not_yet", None),  # "U2"
    ("finished", 3, None, "not_yet", None),  # "T1"
]
LATER = [
    ("committed", 3, 5, None, "committed"),
    ("delayed", 0, 1, None, None),
    ("delayed", 2, 4, None, None),
    ("finished", 3, 6, None, "committed"),
]


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """A lake of two runs with closed and open steps."""
    family = Family(GrowingLake(tmp_path), [])
    family.write(delayed("U1"), delivered("U1", 10))
    follow(family)
    family.write(delayed("U2", 11), half("T1", 12))
    follow(family)
    assert family.steps() == FIRST
    return family


def follow(family: Family) -> None:
    family.growing.archive()
    follow_edges(family.growing.lake)


def complete_open_steps(family: Family) -> list[Step]:
    """Let the open steps be completed."""
    prepared = family.places[3]
    family.write(delivered("U2", 21), committed("T1", prepared, 22), op([0], 23))
    follow(family)
    return family.steps()


def test_compaction_leaves_open_steps_to_the_next_run(family: Family) -> None:
    lake = family.growing.lake
    family.write(delayed("U3", 13), delivered("U3", 23))
    follow(family)
    compact_table(lake, "edges", plan_compaction(lake, "edges", 1 << 30), LAKE_TABLES["edges"].sort_columns)
    names = [Path(path).name for path in DeltaTable(lake.uri("edges")).file_uris()]
    assert sorted(map(is_open_steps_file, names)) == [False, True]
    family.write(delivered("U2", 24))
    follow(family)
    assert family.steps() == [
        ("delayed", 0, 1, None, None),
        ("delayed", 2, 6, None, None),
        ("delayed", 4, 5, None, None),
        ("finished", 3, None, "not_yet", None),
    ]


@pytest.mark.parametrize("what", ["a data file", "all data files", "the log"])
def test_a_damaged_table_is_rebuilt(family: Family, what: str) -> None:
    folder = Path(family.growing.lake.uri("edges"))
    files = sorted(folder.glob("_delta_log/*.json" if what == "the log" else "*.parquet"))
    for path in files[:1] if what == "a data file" else files:
        damage(path, "cut")
    plan = plan_repair(family.growing.lake)
    assert any(line.startswith("edges: ") for line in plan.plan_lines())
    repair_lake(family.growing.lake, plan, "1")
    assert plan_repair(family.growing.lake).is_empty
    assert family.steps() == FIRST
    assert complete_open_steps(family) == LATER


def test_a_deleted_table_is_rebuilt(family: Family) -> None:
    lake = family.growing.lake
    assert complete_open_steps(family) == LATER
    other = Lake(f"{lake.root}-other")
    Path(lake.root).rename(other.root)
    for path in Path(other.uri("edges")).rglob("*"):
        if path.is_file():
            path.unlink()
    (Path(other.root) / "_newest" / "edges.json").unlink()
    follow_edges(other)
    assert family.steps(other) == LATER


def erase(lake: Lake, unique_key: str) -> None:
    place = ErasureTarget(lake, "1")
    plan = plan_erasure(place, KeysToErase(unique_keys=[unique_key]))
    run_erasure(place, plan, "a test", datetime.timedelta(days=7), lambda _: None)


def test_an_erased_message_never_has_steps_again(family: Family) -> None:
    lake = family.growing.lake
    erase(lake, "U2")
    assert family.steps() == [FIRST[0], FIRST[2]]
    erase(lake, "U1")
    assert family.steps() == [FIRST[2]]
    names = [Path(path).name for path in DeltaTable(lake.uri("edges")).file_uris()]
    assert list(map(is_open_steps_file, names)) == [True]
    family.write(committed("T1", family.places[3], 22), op([0], 23))
    follow(family)
    assert family.steps() == [("committed", 3, 4, None, "committed"), ("finished", 3, 5, None, "committed")]


def test_an_erased_trace_has_no_steps(family: Family) -> None:
    family.write(record("U9", seconds=20, properties={"KEYS": "key"}))
    keys = {"KEYS": "U9"}
    told = trace(pub("U9", family.places[4], 20), begun("U9", "r"), ended("U9", "r"), seconds=21)
    pairs = (*told.properties, *keys.items())
    family.write(record(None, told.topic, 21, body=told.body, properties=dict(pairs)))
    family.write(*failed("U9", 1, family.places[4], 22))
    follow(family)
    assert len(family.steps()) == len(FIRST) + 4
    erase(family.growing.lake, "U9")
    assert family.steps() == FIRST
