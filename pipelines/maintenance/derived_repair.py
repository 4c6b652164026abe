"""Repairs the tables that follow `messages`: deletes rows of lost runs, and adds files that commits refer to."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.archive_log import ArchiveCommit, commits_after
from commitlake.connectors.lake.committer import append_files
from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.followed_runs import last_finished
from commitlake.connectors.lake.follower import FOLLOWING, finish_runs
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.plain_files import write_plain_file
from commitlake.pipelines.maintenance.progress_repair import LostRuns
from commitlake.pipelines.maintenance.table_files import TableFile, exchange_files, folder_of, read_table_files

OF_RUNS = (*FOLLOWING, "archive_runs")
"""Tables that have the column `run_id`."""


def lost_run_ids(lake: LakePaths, lost: Collection[LostRuns]) -> set[str]:
    """Return the ids of the runs that `messages` has lost."""
    found = {run_id for one in lost for run_id in one.run_ids}
    try:
        rows = delta_table(lake.archive_runs).to_pyarrow_table(columns=["sequence", "run_id"]).to_pylist()
    except TableNotFoundError:
        return found
    return found | {row["run_id"] for row in rows for one in lost if one.after < row["sequence"] < one.before}


def delete_runs(table_uri: str, run_ids: Collection[str]) -> int:
    """Delete the rows of the given runs from a table, and return their number."""
    try:
        files = read_table_files(delta_table(table_uri))
    except TableNotFoundError:
        return 0
    removed: list[TableFile] = []
    added: list[TableFile] = []
    deleted = 0
    folder = folder_of(table_uri)
    for file in files:
        with folder.open_input_file(unquote(file.path)) as source:
            rows = pq.read_table(source, page_checksum_verification=True)
        kept = rows.filter(pc.invert(pc.is_in(rows.column("run_id"), pa.array(sorted(run_ids), pa.string()))))
        if kept.num_rows == rows.num_rows:
            continue
        removed.append(file)
        deleted += rows.num_rows - kept.num_rows
        if kept.num_rows:
            name = f"part-kept-{datetime.datetime.now(datetime.UTC):%Y%m%d%H%M%S%f}.zstd.parquet"
            written = write_plain_file(kept, table_uri, name)
            added.append(
                TableFile(written.path, {}, written.size, written.rows, file.modified_ms, statistics=written.statistics)
            )
    if removed:
        exchange_files(table_uri, removed, added, changes_data=True, note={"action": "repair"})
    return deleted


def refill_tables(lake: LakePaths, parser_version: str) -> dict[str, int]:
    """Add the files that commits of `messages` name to the tables that follow it.

    Returns the number of files that no longer exist, by table.
    """
    gone: dict[str, int] = {}
    for commit in commits_after(lake.messages, 0):
        for table, schema in FOLLOWING.items():
            uri = getattr(lake, table)
            wanted = commit.files.get(table, ())
            if not wanted or commit.sequence <= last_finished(uri):
                continue
            there = folder_of(lake.root).get_file_info([f"{table}/{file.path}" for file in wanted])
            found = [file for file, info in zip(wanted, there, strict=True) if info.is_file and info.size == file.size]
            if len(found) < len(wanted):
                gone[table] = gone.get(table, 0) + len(wanted) - len(found)
            append_files(uri, schema, found, commit.sequence)
    finish_runs(lake, "", parser_version)
    return gone


def named_files(commits: Collection[ArchiveCommit], table: str) -> set[str]:
    """Return the paths of the files that commits name for a table."""
    return {file.path for commit in commits for file in commit.files.get(table, ())}
