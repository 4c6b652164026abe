"""The newest archive runs of a lake, as its tables have them."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_run_completion import ArchiveRun
from commitlake.connectors.lake.committer import append_rows
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.pipelines.archive.past_runs import MAX_RUNS, read_past_runs
from commitlake.pipelines.quality.report import Losses, QualityReport, to_quality_results
from commitlake.schemas.tables.archive_runs import ARCHIVE_RUNS
from tests.support.lakes import GrowingLake, rows_of, shop_messages
from tests.support.profiles import NOON
from tests.support.reports import report_of

HOUR = datetime.timedelta(hours=1)
EXAMPLE = {"broker": "a"}


@pytest.fixture
def growing(tmp_path: Path) -> GrowingLake:
    """A lake of two runs that were not judged."""
    growing = GrowingLake(tmp_path)
    for seed in range(2):
        growing.write(shop_messages(10, seed=seed))
        growing.archive()
    return growing


def judge(lake: Lake, run_id: str, report: QualityReport) -> None:
    """Write the verdict on a run."""
    verdict = Losses().verdict(report)
    append_rows(lake, "quality_results", to_quality_results(report, run_id=run_id, verdict=verdict))


def test_runs_have_the_values_of_the_table_newest_first(growing: GrowingLake) -> None:
    rows = {row["sequence"]: row for row in rows_of(growing.lake.uri("archive_runs"))}
    runs = read_past_runs(growing.lake)
    assert [run.sequence for run in runs] == [2, 1]
    for run in runs:
        row = rows[run.sequence]
        figures = ("run_id", "stores", "messages", "bytes", "quarantined", "gaps")
        assert [getattr(run, name) for name in figures] == [row[name] for name in figures]
        assert run.seconds == (row["finished_at"] - row["started_at"]).total_seconds()
        assert (run.ended_at, run.unmet, run.is_stopped, run.is_recovered) == (row["finished_at"], None, False, False)


def test_unmet_expectations_are_counted_without_the_row_of_the_verdict(growing: GrowingLake) -> None:
    newest, oldest = read_past_runs(growing.lake)
    later = newest.ended_at + HOUR
    judge(
        growing.lake,
        newest.run_id,
        replace(report_of(("no_dead_letters", EXAMPLE), ("logs_are_intact", EXAMPLE)), judged_at=later),
    )
    judge(growing.lake, oldest.run_id, replace(report_of(), judged_at=later))
    assert [run.unmet for run in read_past_runs(growing.lake)] == [2, 0]


def test_a_stopped_run_is_listed(growing: GrowingLake) -> None:
    later = read_past_runs(growing.lake)[0].ended_at + HOUR
    judge(growing.lake, "stopped", replace(report_of(("kinds_are_known", EXAMPLE)), judged_at=later))
    first = read_past_runs(growing.lake)[0]
    assert (first.run_id, first.sequence, first.is_stopped, first.unmet, first.ended_at) == (
        "stopped", None, True, 1, later
    )  # fmt: skip
    assert len(read_past_runs(growing.lake, limit=2)) == 2


def test_a_run_that_a_later_one_finished_has_no_length(growing: GrowingLake) -> None:
    growing.write(shop_messages(10, seed=5))
    growing.archive(finish=False)
    growing.write(shop_messages(10, seed=6))
    growing.archive()
    newest, recovered = read_past_runs(growing.lake)[:2]
    assert (recovered.is_recovered, recovered.seconds, recovered.messages) == (True, None, 10)
    assert (newest.is_recovered, newest.seconds is None) == (False, False)


def test_only_the_newest_files_are_read(growing: GrowingLake) -> None:
    """The file of the first run is deleted, and is not needed."""
    row = ArchiveRun(0, "", NOON, NOON + HOUR, 1, 5, 100, 0, 0, recovered=False, parser_version="1")
    for sequence in range(3, MAX_RUNS + 5):
        columns = vars_of(replace(row, sequence=sequence, run_id=f"run-{sequence}"))
        append_rows(growing.lake, "archive_runs", columns)
    table = DeltaTable(growing.lake.uri("archive_runs"))
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    (first,) = [file["path"] for file in files if file["max.sequence"] == 1]
    (Path(growing.lake.uri("archive_runs")) / first).unlink()
    assert [run.sequence for run in read_past_runs(growing.lake, limit=5)] == [24, 23, 22, 21, 20]


def vars_of(run: ArchiveRun) -> pa.Table:
    """Return a row of `archive_runs`."""
    names = ARCHIVE_RUNS.names
    return pa.Table.from_pylist([{name: getattr(run, name) for name in names}], schema=arrow_schema(ARCHIVE_RUNS))


def test_a_lake_without_a_finished_run_has_none(tmp_path: Path) -> None:
    growing = GrowingLake(tmp_path)
    growing.write(shop_messages(3))
    growing.archive(finish=False)
    assert read_past_runs(growing.lake) == []


def test_a_folder_without_a_lake_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LakeError):
        read_past_runs(Lake(str(tmp_path / "nowhere")))
