"""A repair moves `lag_minutes` aside if it is damaged, or if what it is computed from may have other rows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from commitlake.connectors.lake.delta_log.newest_versions import delete_newest_version
from commitlake.jobs.archive.command import main as archive
from commitlake.pipelines.lag_minutes.backfill import backfill_lag_minutes
from commitlake.pipelines.repair.plan import plan_repair
from commitlake.pipelines.repair.run import repair_lake
from commitlake.pipelines.snapshot.progress import OffsetKind, OffsetOwner, SnapshotSource, StoreSnapshot
from commitlake.pipelines.snapshot.table_append import append_snapshot
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.times import from_ms
from tests.support.lakes import MIDNIGHT_MS, GrowingLake
from tests.support.logs import new_message
from tests.support.minutes_of_lag import all_rows, computed_from_scratch
from tests.support.table_damages import damage

COMPUTE = "'commitlake archive --backfill lag_minutes' computes it again"


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake with the lag of four minutes."""
    growing = GrowingLake(tmp_path)
    growing.write(new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + n * 60_000) for n in range(3))
    growing.archive()
    owner = OffsetOwner(OffsetKind.GROUP, "billing", "orders", 0)
    for minute in (1, 3, 5):
        taken = {OffsetKind.GROUP: from_ms(MIDNIGHT_MS + minute * 60_000)}
        progress = StoreSnapshot("broker-a", SnapshotSource.FILE, taken, {owner: minute // 2}, log_end=len(growing.log))
        append_snapshot(growing.lake, progress)
    assert backfill_lag_minutes(growing.lake).minutes == 5
    return growing


def check_repair(growing: GrowingLake, *expected_lines: str) -> None:
    """Check that a repair moves the table aside, and that the command that it names computes it again."""
    plan = plan_repair(growing.lake)
    assert {*expected_lines} <= {*plan.plan_lines()}
    assert f"lag_minutes: all minutes: {COMPUTE}" in repair_lake(growing.lake, plan, "1")
    assert growing.lake.find("lag_minutes") is None
    assert plan_repair(growing.lake).is_empty
    growing.archive()
    assert backfill_lag_minutes(growing.lake).minutes == 5


@pytest.mark.some_cases(2)
@pytest.mark.parametrize("how", ["cut", "empty", "deleted"])
@pytest.mark.parametrize("pattern", ["_delta_log/*.json", "part-*.parquet"])
def test_a_damaged_table_is_moved_aside(growing: GrowingLake, pattern: str, how: str) -> None:
    rows = all_rows(growing.lake)
    damage(max(Path(growing.lake.uri("lag_minutes")).glob(pattern)), how)
    check_repair(growing, f"  the table is moved aside; {COMPUTE}")
    assert all_rows(growing.lake) == rows


def test_a_table_that_another_program_has_changed_is_moved_aside(growing: GrowingLake) -> None:
    rows = all_rows(growing.lake)
    growing.lake.table("lag_minutes").delete("kind = 'group'")
    growing.lake.table("lag_minutes").vacuum(0, dry_run=False, enforce_retention_duration=False)
    undone = "  the changes are undone if the files from before are still there"
    check_repair(growing, f"{undone}; if not, the table is moved aside, and {COMPUTE}")
    assert all_rows(growing.lake) == rows


def test_it_is_moved_aside_if_messages_are_damaged(growing: GrowingLake) -> None:
    rows = all_rows(growing.lake)
    damage(max(Path(growing.lake.uri("messages")).glob("_delta_log/*.json")), "cut")
    check_repair(growing)
    assert all_rows(growing.lake) == rows


def test_it_is_kept_if_other_tables_are_damaged(growing: GrowingLake) -> None:
    damage(max(Path(growing.lake.uri("topic_minutes")).glob("_delta_log/*.json")), "cut")
    version = growing.lake.table("lag_minutes").version()
    repair_lake(growing.lake, plan_repair(growing.lake), "1")
    assert growing.lake.table("lag_minutes").version() == version


def test_the_command_computes_what_is_missing(growing: GrowingLake, capsys: pytest.CaptureFixture[str]) -> None:
    rows = computed_from_scratch(growing.lake)
    shutil.rmtree(growing.lake.uri("lag_minutes"))
    delete_newest_version(growing.lake.uri("lag_minutes"))
    call = ["--lake", growing.lake.root, "--backfill", "lag_minutes", "--local"]
    assert archive(call) == ExitCode.OK
    assert f"lag_minutes: 5 minutes computed, {len(rows)} rows added (" in capsys.readouterr().err
    assert all_rows(growing.lake) == rows
    assert archive(call) == ExitCode.OK
    assert "lag_minutes: lacks nothing (" in capsys.readouterr().err
    growing.write([new_message(topic="orders", queue_id=0, born_timestamp=MIDNIGHT_MS + 4 * 60_000)])
    growing.archive()
    assert archive(call) == ExitCode.OK
    assert "lag_minutes: 2 minutes computed, 2 rows added, 2 minutes computed again (" in capsys.readouterr().err
