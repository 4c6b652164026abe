"""Repairs the tables that follow `messages`: deletes rows of lost runs, and adds files that commits refer to."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Sequence
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Transaction

from commitlake.connectors.lake.archive_commits import ArchiveCommit, commits_after
from commitlake.connectors.lake.archive_run_completion import finish_runs
from commitlake.connectors.lake.committer import append_files
from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.follower_progress import last_finished_sequence
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.pipelines.maintenance.file_replacement import new_table_file, replace_table_files
from commitlake.pipelines.repair.commits import LostRuns
from commitlake.schemas.tables.lake_tables import FOLLOWING

OF_RUNS = (*FOLLOWING, "archive_runs")
"""Tables that have the column `run_id`."""


def lost_run_ids(lake: Lake, lost_runs: Collection[LostRuns]) -> set[str]:
    """Return the ids of the archive runs whose messages are lost."""
    found = {run_id for one in lost_runs for run_id in one.run_ids}
    table = lake.find("archive_runs")
    if table is None:
        return found
    rows = table.to_pyarrow_table(columns=["sequence", "run_id"]).to_pylist()
    return found | {row["run_id"] for row in rows for one in lost_runs if one.after < row["sequence"] < one.before}


IsReplaced = Callable[[pa.Table], pa.ChunkedArray]
"""A function that returns, for each row of a table, whether it is replaced."""


def make_run_filter(run_ids: Collection[str]) -> IsReplaced:
    """Return a function that computes a mask of the rows of the given runs."""
    return lambda rows: pc.is_in(rows.column("run_id"), pa.array(sorted(run_ids), pa.string()))


def delete_rows_of_runs(lake: Lake, name: str, run_ids: Collection[str]) -> int:
    """Delete the rows of the given runs from a table, and return their number."""
    return replace_rows(lake, name, make_run_filter(run_ids))


def replace_rows(
    lake: Lake,
    name: str,
    is_replaced: IsReplaced,
    added_rows: pa.Table | None = None,
    transactions: Sequence[Transaction] = (),
) -> int:
    """Delete rows of an unpartitioned table and add others, in one commit; return the number of deleted rows."""
    table = lake.find(name)
    if table is None:
        return 0
    removed: list[TableFile] = []
    added: list[TableFile] = []
    deleted = 0
    folder = lake.open_folder(name)
    for file in read_table_files(table):
        with folder.open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, page_checksum_verification=True)
        kept = rows.filter(pc.invert(is_replaced(rows)).fill_null(True))
        if kept.num_rows == rows.num_rows:
            continue
        removed.append(file)
        deleted += rows.num_rows - kept.num_rows
        if kept.num_rows:
            added.append(_write_rows(lake, name, kept, file.modified_ms))
    if added_rows is not None and added_rows.num_rows:
        added.append(_write_rows(lake, name, added_rows, time.time_ns() // 1_000_000))
    if removed or added:
        note = {"action": "repair"}
        replace_table_files(lake, name, removed, added, changes_data=True, note=note, transactions=transactions)
    return deleted


def _write_rows(lake: Lake, name: str, rows: pa.Table, modified_ms: int) -> TableFile:
    file = write_plain_file(rows, lake, name, f"part-kept-{secrets.token_hex(16)}.zstd.parquet")
    return new_table_file(file, modified_ms)


def add_missing_table_files(lake: Lake, parser_version: str) -> dict[str, int]:
    """Add to derived tables the data files that commits of `messages` name for them but that they lack.

    Returns the number of files that no longer exist, by table.
    """
    gone: dict[str, int] = {}
    for commit in commits_after(lake, 0):
        for table in FOLLOWING:
            wanted = commit.files.get(table, ())
            if not wanted or commit.sequence <= last_finished_sequence(lake, table):
                continue
            there = lake.open_folder().get_file_info([f"{table}/{file.path}" for file in wanted])
            found = [file for file, info in zip(wanted, there, strict=True) if info.is_file and info.size == file.size]
            if len(found) < len(wanted):
                gone[table] = gone.get(table, 0) + len(wanted) - len(found)
            append_files(lake, table, found, commit.sequence)
    finish_runs(lake, "", parser_version)
    return gone


def files_named_by_commits(commits: Collection[ArchiveCommit], table: str) -> set[str]:
    """Return the paths of a table's data files that commits of `messages` name."""
    return {file.path for commit in commits for file in commit.files.get(table, ())}
