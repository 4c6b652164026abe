"""Adding the files that each commit to `messages` names to the tables that follow it, once and in order.

If a run is killed after its commit, the next run completes it from the commit alone.
"""

from __future__ import annotations

import datetime
import secrets
from dataclasses import asdict, dataclass

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.archive_commits import ArchiveCommit, commits_after
from commitlake.connectors.lake.committer import append_files, append_rows
from commitlake.connectors.lake.follower_progress import check_finished_runs, last_finished_sequence
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.schemas.tables.archive_runs import ARCHIVE_RUNS
from commitlake.schemas.tables.lake_tables import FOLLOWING


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A row of `archive_runs`, which records a completed run."""

    sequence: int
    run_id: str
    started_at: datetime.datetime
    finished_at: datetime.datetime
    stores: int
    messages: int
    bytes: int
    quarantined: int
    gaps: int
    recovered: bool
    parser_version: str


def unfinished_commits(lake: Lake, newest_sequence: int) -> list[ArchiveCommit]:
    """Return the commits to `messages` whose rows the tables updated after it do not have yet, oldest first.

    Args:
        newest_sequence: the newest commit's sequence.

    Raises:
        LogDamagedError: if `messages` has lost its newest commits.
    """
    finished = last_finished_sequence(lake, "archive_runs")
    check_finished_runs(lake, finished, newest_sequence)
    return commits_after(lake, finished) if newest_sequence > finished else []


def finish_runs(lake: Lake, run_id: str, parser_version: str) -> list[ArchiveCommit]:
    """Update the other tables of the archive to the newest commit to `messages`.

    Args:
        run_id: the run that calls this; commits of other runs count as recovered.
        parser_version: for the rows of `archive_runs`.

    Returns:
        The completed commits, oldest first.
    """
    commits = commits_after(lake, last_finished_sequence(lake, "archive_runs"))
    for commit in commits:
        # The other tables come before `archive_runs`, whose number says that a commit is complete. If this process is
        # killed in between, the next run repeats the commit, and `append_files` skips the tables that have it.
        for table in (*FOLLOWING, "erasures"):
            if files := commit.files.get(table):
                append_files(lake, table, files, commit.sequence)
        _append_run(lake, _make_run(commit, commit.run_id != run_id, parser_version))
    return commits


def list_runs_missing_in_archive_runs(lake: Lake) -> list[ArchiveCommit]:
    """Return the commits of finished archive runs that have no row in `archive_runs`, oldest first."""
    table = lake.find("archive_runs")
    if table is None:
        return []
    # Compared by run id, because a row that was restored has no place in the order of the numbers.
    there = table.to_pyarrow_table(columns=["run_id"]).column("run_id").to_pylist()
    known, finished = set(there), last_finished_sequence(lake, "archive_runs")
    commits = commits_after(lake, 0)
    return [commit for commit in commits if commit.run_id not in known and commit.sequence <= finished]


def restore_runs(lake: Lake, parser_version: str) -> int:
    """Restore missing rows of `archive_runs` from the commits of `messages`, and return their number.

    Args:
        parser_version: for the rows.
    """
    missing = list_runs_missing_in_archive_runs(lake)
    if missing:
        rows = [asdict(_make_run(commit, True, parser_version)) for commit in missing]
        append_rows(
            lake,
            "archive_runs",
            pa.Table.from_pylist(rows, schema=arrow_schema(ARCHIVE_RUNS)),
        )
    return len(missing)


def _make_run(commit: ArchiveCommit, is_recovered: bool, parser_version: str) -> ArchiveRun:
    counts = commit.counts
    now = datetime.datetime.now(datetime.UTC)
    return ArchiveRun(
        sequence=commit.sequence,
        run_id=commit.run_id,
        started_at=datetime.datetime.fromisoformat(counts.started_at) if counts else now,
        finished_at=now,
        stores=len(commit.ranges),
        messages=counts.messages if counts else 0,
        bytes=commit.log_bytes,
        quarantined=counts.quarantined if counts else 0,
        gaps=counts.gaps if counts else 0,
        recovered=is_recovered,
        parser_version=parser_version,
    )


def _append_run(lake: Lake, run: ArchiveRun) -> None:
    """Record a run as finished in `archive_runs`, so that the next run does not repeat the steps after its commit."""
    row = pa.Table.from_pylist([asdict(run)], schema=arrow_schema(ARCHIVE_RUNS))
    # Two processes may finish the same run at once, so each writes a file of its own.
    name = f"part-{run.run_id}-{secrets.token_hex(4)}.zstd.parquet"
    file = write_plain_file(row, lake, "archive_runs", name)
    append_files(lake, "archive_runs", [file], run.sequence)
