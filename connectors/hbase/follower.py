"""Projection of `messages` into HBase, version by version, never ahead of Delta; a repeated run changes nothing.

    follow(SparkRunner(spark), lake.uri("messages"), HBaseOptions.of_address("hbase-thrift:9090"))

Rows that a version added are written, rows that it removed are deleted, and then the table's progress is updated
(`progress`). If a run is killed, the next run repeats the unfinished version and puts the same cells. The first run
loads the current table as one large version, so it needs no old files. If the first load is killed, the next run loads
the table as it is then, and deletes the rows that were removed since.

A few Parquet files are processed in this process, many by a runner's tasks. Each reads its files and writes their rows
to HBase over one connection. Neither rows nor columns enter the JVM.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pyarrow.fs as pafs

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.followed import HBaseUpdate
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.progress import TableProgress, read_progress, write_progress
from commitlake.connectors.hbase.tables import open_or_create
from commitlake.connectors.hbase.work import Work, find_kept_places, run_here, run_in_tasks
from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.delta_log.versions import (
    AddedFile,
    AddedVersion,
    VersionGoneError,
    added_versions,
    snapshot_files,
    table_id,
)
from commitlake.connectors.runtime.runner import Runner
from commitlake.connectors.storage.s3_options import S3Options

TASK_ROWS = 50_000
"""Number of rows of a version from which tasks pay off: a few seconds of writing over one connection."""

OnVersion = Callable[[int, int], None]


def follow(
    runner: Runner | None,
    messages_uri: str,
    options: HBaseOptions,
    *,
    s3: S3Options | None = None,
    progress: OnVersion | None = None,
    task_rows: int = TASK_ROWS,
) -> HBaseUpdate:
    """Bring HBase to the newest version of `messages`, and create the table if it does not exist.

    Args:
        runner: for versions of many rows; without it, this thread does all the work.
        messages_uri: path or URI of the Delta table.
        options: the HBase server and table, and write settings.
        s3: the object store, if the table is in one; by default that of the environment.
        progress: called with each finished version and its number of rows.
        task_rows: number of rows from which the runner is used.

    Raises:
        HBaseError: if the table is not, or cannot be, one of ours, if it cannot follow this lake, or no longer can, or
            if HBase did not answer in time; finished versions stay written.
        ConcurrentFollowError: if another run has written meanwhile.
        VersionsError: for Delta files that do not hold just the table's rows.
    """
    started = time.monotonic()
    rows = deleted = versions = 0
    with Client(options) as client:
        salts = open_or_create(client).salts
        state = _start_progress(client, read_progress(client), messages_uri, s3)
        for version in _pending_versions(state, messages_uri, s3):
            work = Work(options.connected(), salts, messages_uri, s3)
            deleted += _apply_files(runner, work.deleting(find_kept_places(work, version)), version.removed, task_rows)
            put = _apply_files(runner, work, version.files, task_rows)
            done = TableProgress(state.followed, version.version)
            write_progress(client, state, done)
            state, rows, versions = done, rows + put, versions + 1
            if progress is not None:
                progress(version.version, put)
    assert state.version is not None  # the first load also sets a version
    return HBaseUpdate(state.version, versions, rows, deleted, time.monotonic() - started)


def _start_progress(
    client: Client, found: TableProgress | None, messages_uri: str, s3: S3Options | None
) -> TableProgress:
    """Return the table's progress; write the first one if it has none."""
    followed = table_id(messages_uri, storage_options(messages_uri, s3))
    if found is not None:
        if found.followed != followed:
            raise HBaseError(
                f"the table {client.options.table} follows the Delta table {found.followed}: expected {followed}, "
                f"which is {messages_uri}. Name another table for this lake, or drop this one"
            )
        return found
    # Written before the first row: if this run is killed, the next one knows which rows may be in the table.
    newest = snapshot_files(messages_uri, storage_options(messages_uri, s3)).version
    state = TableProgress(followed, None, newest)
    write_progress(client, None, state)
    return state


def _pending_versions(state: TableProgress, messages_uri: str, s3: S3Options | None) -> Iterator[AddedVersion]:
    """Return the Delta versions that are not in HBase yet; a first load is a single version with all files."""
    store = storage_options(messages_uri, s3)
    try:
        if state.version is not None:
            # All at once: writing their rows may take longer than temporary credentials are valid.
            yield from list(added_versions(messages_uri, state.version, store))
            return
        assert state.loading is not None  # either version or loading is set
        load = snapshot_files(messages_uri, store)
        since = added_versions(messages_uri, state.loading, store)
        removed = [file for version in since if version.version <= load.version for file in version.removed]
        yield AddedVersion(load.version, load.files, tuple(removed))
    except VersionGoneError as error:
        cure = "Drop the HBase table; the next archive run creates it again from the lake"
        raise HBaseError(f"{error}. {cure}") from None


def _apply_files(runner: Runner | None, work: Work, files: tuple[AddedFile, ...], task_rows: int) -> int:
    _check_files_exist(work, files)
    rows = sum(task_rows if file.rows is None else file.rows for file in files)
    if runner is None or rows < task_rows:
        return run_here(work, files)
    return run_in_tasks(runner, work, files)


def _check_files_exist(work: Work, files: tuple[AddedFile, ...]) -> None:
    if not files:
        return
    found = work.files().get_file_info([file.name for file in files])
    for info in found:
        if info.type == pafs.FileType.NotFound:
            raise HBaseError(
                f"the data file {info.path} is no longer there: expected VACUUM to leave what HBase has yet to follow. "
                "Drop the HBase table; the next archive run creates it again from the lake"
            )
