"""The audit's comparison of `topic_minutes` with `profiles`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.reading.decoding.row_batch import MAX_TIMESTAMP_MS
from commitlake.connectors.runtime.local_runner import HERE
from commitlake.jobs.audit import command as audit
from commitlake.pipelines.archive.run import Config, run_archive
from commitlake.pipelines.audit.audited_versions import read_lake_state
from commitlake.pipelines.audit.topic_minutes_check import compare_minutes
from commitlake.pipelines.topic_minutes.backfill import backfill_minutes
from commitlake.schemas.errors import ExitCode
from tests.support.audited_lakes import judge_nothing, write_lake
from tests.support.earlier_archives import without_topic_minutes
from tests.support.lakes import GrowingLake, shop_messages
from tests.support.logs import new_message
from tests.support.odd_logs import TIMES


def compared(lake: Lake) -> tuple[list[Any], str]:
    return compare_minutes(lake, read_lake_state(lake))


def archived(growing: GrowingLake, seed: int) -> Lake:
    growing.write(shop_messages(60, days=2, seed=seed))
    run_archive(HERE, Config(str(growing.store), growing.lake, judge=judge_nothing))
    return growing.lake


def add_to(lake: Lake, column: str, sql: str) -> None:
    """Write the table again, a column of all rows changed."""
    table = DeltaTable(lake.uri("topic_minutes"))
    rows = table.to_pyarrow_table()
    place = rows.schema.get_field_index(column)
    values = [eval(sql, {"x": value}) for value in rows.column(column).to_pylist()]  # of our own
    write_deltalake(table, rows.set_column(place, rows.schema.field(column), [values]), mode="overwrite")


def test_tables_of_the_same_runs_agree(tmp_path: Path) -> None:
    assert compared(Lake(str(write_lake(tmp_path) / "lake"))) == ([], "")


@pytest.mark.some_cases(1)
@pytest.mark.parametrize("column", ["messages", "bytes", "body_bytes"])
def test_a_count_that_differs_is_found(tmp_path: Path, column: str) -> None:
    lake = archived(GrowingLake(tmp_path), 1)
    add_to(lake, column, "x + 1")
    (finding,), _ = compared(lake)
    assert finding.table == "topic_minutes"
    assert f"{column}, found" in finding.notes[0]


def test_times_at_the_ends_of_calendars_are_compared(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(new_message(number, born_timestamp=time) for number, time in enumerate(TIMES))
    run_archive(HERE, Config(str(growing.store), growing.lake, judge=judge_nothing))
    assert compared(growing.lake) == ([], "")
    add_to(growing.lake, "messages", "x + 1")
    (finding,), _ = compared(growing.lake)
    windows = {
        (number % 4, time // 600_000 if 0 <= time <= MAX_TIMESTAMP_MS else None) for number, time in enumerate(TIMES)
    }
    assert finding.count == len(windows)


def test_minutes_of_another_time_are_found_on_both_days(tmp_path: Path) -> None:
    lake = archived(GrowingLake(tmp_path), 1)
    add_to(lake, "minute", "x + __import__('datetime').timedelta(days=5)")
    (finding,), _ = compared(lake)
    assert finding.count > 1


def test_runs_of_an_earlier_version_are_reported(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    with without_topic_minutes():
        archived(growing, 1)
    lake = archived(growing, 2)
    findings, note = compared(lake)
    assert findings == []
    assert "1 run has no rows in topic_minutes" in note
    assert "--backfill topic_minutes" in note


def test_a_backfill_is_compared_with_all_runs(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    with without_topic_minutes():
        archived(growing, 1)
    backfill_minutes(growing.lake)
    lake = archived(growing, 2)
    assert compared(lake) == ([], "")
    add_to(lake, "messages", "x + 1")
    assert compared(lake)[0] != []


def test_a_lake_without_the_table_is_not_compared(tmp_path: Path) -> None:
    with without_topic_minutes():
        lake = archived(GrowingLake(tmp_path), 1)
    assert compared(lake) == ([], "")


def test_the_audit_prints_the_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = archived(GrowingLake(tmp_path), 1)
    add_to(lake, "messages", "x + 1")
    assert audit.main(["--lake", lake.root, "--local", "--quiet"]) == ExitCode.DAMAGE
    assert "topic_minutes" in capsys.readouterr().out
