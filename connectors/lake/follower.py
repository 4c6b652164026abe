"""The tables that follow `messages` by its sequence number: what a commit names for them is added, once and in order.

A run that was stopped behind its commit is made good by the next one, from the commit alone.
"""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import islice

import pyarrow as pa
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from connectors.lake.archive_log import APPLICATION_ID, ArchiveCommit, commits_after, read_commits, read_last_commit
from connectors.lake.committer import append_files, append_rows
from connectors.lake.delta import delta_table
from connectors.lake.log_check import WAY_OUT, LogDamagedError
from connectors.lake.paths import LakePaths
from connectors.lake.plain_files import write_plain_file
from schemas.tables.archive_runs import ARCHIVE_RUNS
from schemas.tables.gaps import GAPS
from schemas.tables.profile import PROFILES
from schemas.tables.quality_results import QUALITY_RESULTS
from schemas.tables.quarantine import QUARANTINE
from schemas.tables.store_config import STORE_CONFIG

FOLLOWING: dict[str, StructType] = {
    "quarantine": QUARANTINE,
    "gaps": GAPS,
    "profiles": PROFILES,
    "quality_results": QUALITY_RESULTS,
    "store_config": STORE_CONFIG,
}
"""The tables whose files a commit may name."""
_LOOKED_AT = 64
"""Commits of `messages` that a question to another table reads at most."""


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """A row of `archive_runs`: what one run did, once all of it is done."""

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


def unfinished_commits(lake: LakePaths, newest: int) -> list[ArchiveCommit]:
    """The commits that other tables do not follow yet, oldest first.

    Args:
        lake: where the tables lie.
        newest: the newest commit's sequence.

    Raises:
        LogDamagedError: where `messages` has lost its newest commits.
    """
    finished = last_finished(lake.archive_runs)
    check_not_ahead(lake, finished, newest)
    return commits_after(lake.messages, finished) if newest > finished else []


def check_not_ahead(lake: LakePaths, finished: int, newest: int) -> None:
    """Refuse a lake in which more runs are finished than `messages` has commits of.

    Args:
        lake: where the tables lie.
        finished: the newest finished run that `archive_runs` tells of.
        newest: the sequence of the newest commit, as it was read before.

    Raises:
        LogDamagedError: if that is so; other runs may have committed since `newest` was read.
    """
    if finished <= newest:
        return
    last = read_last_commit(lake.messages)
    if last is None or last.sequence < finished:
        raise LogDamagedError(
            f"{lake.messages}: expected archive commit {finished} in its _delta_log, which archive_runs has, found "
            f"{last.sequence if last else 'none'} as the newest: the last entries are lost. {WAY_OUT}"
        )


def missing_runs(lake: LakePaths, table: str, commits: Iterable[ArchiveCommit]) -> list[int]:
    """Return the finished runs whose files a table that follows does not have, by their sequence numbers.

    Args:
        lake: where the tables lie.
        table: one of `FOLLOWING`.
        commits: of `messages`.
    """
    finished = last_finished(lake.archive_runs)
    followed = last_finished(getattr(lake, table))
    return [made.sequence for made in commits if made.files.get(table) and followed < made.sequence <= finished]


def check_follows(lake: LakePaths, table: str) -> None:
    """Refuse a table that does not have what the newest commits of `messages` name for it.

    Raises:
        LogDamagedError: if it has lost that.
    """
    try:
        newest = list(islice(read_commits(lake.messages), _LOOKED_AT))
    except (TableNotFoundError, LogDamagedError):  # said where messages is asked
        return
    missing = missing_runs(lake, table, newest)
    if missing:
        raise LogDamagedError(
            f"{getattr(lake, table)}: expected the rows of archive run {missing[0]}, which is finished, found a table "
            f"that ends before it: its last entries, or its log, are lost. {WAY_OUT}"
        )


def finish_runs(lake: LakePaths, run_id: str, parser_version: str) -> list[ArchiveCommit]:
    """Let the tables follow up to the newest commit.

    Args:
        lake: where the tables lie.
        run_id: of the run that does this; other runs' commits count as recovered.
        parser_version: for the rows of `archive_runs`.

    Returns:
        What was done, oldest first.
    """
    commits = commits_after(lake.messages, last_finished(lake.archive_runs))
    for commit in commits:
        for table, schema in FOLLOWING.items():
            if files := commit.files.get(table):
                append_files(getattr(lake, table), schema, files, commit.sequence)
        _append_run(_run_of(commit, commit.run_id != run_id, parser_version), lake.archive_runs)
    return commits


def lacking_runs(lake: LakePaths) -> list[ArchiveCommit]:
    """Return the commits of finished runs of which `archive_runs` has no row, oldest first."""
    try:
        there = delta_table(lake.archive_runs).to_pyarrow_table(columns=["run_id"]).column("run_id").to_pylist()
    except TableNotFoundError:
        return []
    known, finished = set(there), last_finished(lake.archive_runs)
    commits = commits_after(lake.messages, 0)
    return [commit for commit in commits if commit.run_id not in known and commit.sequence <= finished]


def restore_runs(lake: LakePaths, parser_version: str) -> int:
    """Write the rows of `archive_runs` again that are not there, as far as the commits of `messages` tell; how many.

    Args:
        lake: where the tables lie.
        parser_version: for the rows.
    """
    missing = lacking_runs(lake)
    if missing:
        rows = [asdict(_run_of(commit, True, parser_version)) for commit in missing]
        append_rows(
            lake.archive_runs,
            ARCHIVE_RUNS,
            pa.Table.from_pylist(rows, schema=to_arrow_schema(ARCHIVE_RUNS, timezone="UTC")),
        )
    return len(missing)


def _run_of(commit: ArchiveCommit, recovered: bool, parser_version: str) -> ArchiveRun:
    counts = commit.counts
    now = datetime.datetime.now(datetime.UTC)
    return ArchiveRun(
        sequence=commit.sequence,
        run_id=commit.run_id,
        started_at=datetime.datetime.fromisoformat(counts.started_at) if counts else now,
        finished_at=now,
        stores=len(commit.ranges),
        messages=counts.messages if counts else 0,
        bytes=commit.bytes,
        quarantined=counts.quarantined if counts else 0,
        gaps=counts.gaps if counts else 0,
        recovered=recovered,
        parser_version=parser_version,
    )


def _append_run(run: ArchiveRun, runs_uri: str) -> None:
    """Say that a run is finished; until then the next one makes good what follows the commit."""
    row = pa.Table.from_pylist([asdict(run)], schema=to_arrow_schema(ARCHIVE_RUNS, timezone="UTC"))
    # Another run may finish the same one at this moment, with another time: each writes a file of its own.
    file = write_plain_file(row, runs_uri, f"part-{run.run_id}-{secrets.token_hex(4)}.zstd.parquet")
    append_files(runs_uri, ARCHIVE_RUNS, [file], run.sequence)


def last_finished(table_uri: str) -> int:
    """The sequence number of the newest run that `archive_runs`, or another table that follows, has; 0 for none."""
    try:
        return delta_table(table_uri).transaction_version(APPLICATION_ID) or 0
    except TableNotFoundError:
        return 0
