"""A repair counts `topic_minutes` again from `messages` where the table is damaged."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable

from commitlake.connectors.lake.committer import append_rows
from commitlake.jobs.erase.command import main as erase
from commitlake.jobs.maintain.command import main as maintain
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, rows_of, shop_messages
from tests.support.table_damages import damage


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs."""
    growing = GrowingLake(tmp_path)
    for seed in range(2):
        growing.write(shop_messages(30, seed=seed))
        growing.archive()
    return growing


def counted(growing: GrowingLake) -> int:
    return sum(row["messages"] for row in rows_of(growing.lake.uri("topic_minutes")))


def repaired(growing: GrowingLake) -> list[str]:
    plan = plan_repair(growing.lake)
    assert "topic_minutes" in {*plan.logs, *plan.files}
    missing = repair_lake(growing.lake, plan, "1")
    assert plan_repair(growing.lake).is_empty
    return missing


def test_a_damaged_file_is_counted_again(growing: GrowingLake) -> None:
    path = next(Path(growing.lake.uri("topic_minutes")).glob("part-*.parquet"))
    path.write_bytes(path.read_bytes()[:-20])
    assert repaired(growing) == []
    assert counted(growing) == growing.count


def test_a_damaged_log_is_counted_again(growing: GrowingLake) -> None:
    for entry in Path(growing.lake.uri("topic_minutes"), "_delta_log").glob("*.json"):
        entry.write_text("{")
    repaired(growing)
    assert counted(growing) == growing.count


def test_later_runs_continue_after_the_repair(growing: GrowingLake) -> None:
    path = next(Path(growing.lake.uri("topic_minutes")).glob("part-*.parquet"))
    path.write_bytes(b"")
    repaired(growing)
    growing.write(shop_messages(10, seed=9))
    growing.archive()
    assert counted(growing) == growing.count


def test_messages_that_are_counted_twice_after_a_killed_repair_are_counted_again(growing: GrowingLake) -> None:
    append_rows(
        growing.lake,
        "topic_minutes",
        DeltaTable(growing.lake.uri("topic_minutes")).to_pyarrow_table(),
    )
    plan = plan_repair(growing.lake)
    reason = f"expected {growing.count} messages of broker-a, as messages has them, found {growing.count * 2}"
    assert list(plan.plan_lines()) == [f"topic_minutes: {reason}: it is made again from messages"]
    repair_lake(growing.lake, plan, "1")
    assert counted(growing) == growing.count
    assert plan_repair(growing.lake).is_empty


def test_an_erasure_that_a_repair_repeats_is_counted(growing: GrowingLake) -> None:
    backfill_minutes(growing.lake, from_scratch=True)
    asked = ["--key", "order-3", "--reason", "asked", "--yes", "--quiet"]
    assert erase(["--lake", growing.lake.root, *asked]) == ExitCode.OK
    expected = rows_of(growing.lake.uri("topic_minutes"))
    damage(max(Path(growing.lake.uri("messages"), "_delta_log").glob("*.json")), "cut")
    assert maintain(["--lake", growing.lake.root, "--repair"]) == ExitCode.OK
    sizes = [sum(row["body_bytes"] for row in rows) for rows in (expected, rows_of(growing.lake.uri("topic_minutes")))]
    assert sizes[0] == sizes[1]


def test_a_lake_of_an_earlier_version_needs_no_repair(growing: GrowingLake) -> None:
    shutil.rmtree(growing.lake.uri("topic_minutes"))
    assert "topic_minutes" not in plan_repair(growing.lake).files
