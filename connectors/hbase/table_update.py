"""Projection of `messages` into HBase, version by version, never ahead of Delta; a repeated run changes nothing.

    follow_messages(SparkRunner(spark), lake, HBaseOptions.of_address("hbase-thrift:9090"))

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
from deltalake import DeltaTable

from commitlake.connectors.hbase.client import Client
from commitlake.connectors.hbase.errors import HBaseError
from commitlake.connectors.hbase.options import HBaseOptions
from commitlake.connectors.hbase.progress import TableProgress, read_progress, write_progress
from commitlake.connectors.hbase.row_writing_tasks import (
    RowWritingTask,
    find_kept_rows,
    process_files,
    process_files_in_tasks,
)
from commitlake.connectors.hbase.tables import open_or_create_table
from commitlake.connectors.hbase.update_result import HBaseUpdate
from commitlake.connectors.lake.delta_log.versions import (
    AddedFile,
    AddedVersion,
    VersionGoneError,
    added_versions,
    files_of_table,
)
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.runtime.runner import Runner

TASK_ROWS = 50_000
"""Number of rows of a version from which tasks pay off: a few seconds of writing over one connection."""

OnVersion = Callable[[int, int], None]


def follow_messages(
    runner: Runner | None,
    lake: Lake,
    options: HBaseOptions,
    *,
    on_version: OnVersion | None = None,
    rows_per_task: int = TASK_ROWS,
) -> HBaseUpdate:
    """Write all changes of `messages`, up to its newest version, to the HBase table, which is created if it is missing.

    Args:
        runner: for versions of many rows; without it, this thread does all the work.
        options: the HBase server and table, and write settings.
        on_version: called with each finished version and its number of rows.
        rows_per_task: number of rows from which the runner is used.

    Raises:
        HBaseError: if the table is not, or cannot be, one of ours, if it cannot follow this lake, or no longer can, or
            if HBase did not answer in time; finished versions stay written.
        ConcurrentFollowError: if another run has written meanwhile.
        VersionsError: for Delta files that do not hold just the table's rows.
    """
    started = time.monotonic()
    rows = deleted = versions = 0
    with Client(options) as client:
        salts = open_or_create_table(client).salts
        messages = lake.table_at("messages")
        state = _start_progress(client, read_progress(client), lake, messages)
        for version in _pending_versions(state, lake, messages):
            work = RowWritingTask(options.with_long_connect_timeout(), salts, lake)
            deleted += _write_or_delete_rows_of(
                runner, work.to_deletion_except(find_kept_rows(work, version)), version.removed, rows_per_task
            )
            put = _write_or_delete_rows_of(runner, work, version.files, rows_per_task)
            done = TableProgress(state.followed, version.version)
            # Last: if the run is killed before this, the next one puts the same cells once more.
            write_progress(client, state, done)
            state, rows, versions = done, rows + put, versions + 1
            if on_version is not None:
                on_version(version.version, put)
    assert state.version is not None  # the first load also sets a version
    return HBaseUpdate(state.version, versions, rows, deleted, time.monotonic() - started)


def _start_progress(
    client: Client, stored_progress: TableProgress | None, lake: Lake, messages_table: DeltaTable
) -> TableProgress:
    """Return the table's progress; write the first one if it has none."""
    followed = str(messages_table.metadata().id)
    if stored_progress is not None:
        if stored_progress.followed != followed:
            raise HBaseError(
                f"the HBase table {client.options.table} was loaded from another lake: expected the Delta table "
                f"{followed}, which is {lake.uri('messages')}, found {stored_progress.followed}. Name another HBase "
                "table for this lake, or drop this one"
            )
        return stored_progress
    # Written before the first row: if this run is killed, the next one knows which rows may be in the table.
    newest = files_of_table(lake.uri("messages"), messages_table).version
    state = TableProgress(followed, None, newest)
    write_progress(client, None, state)
    return state


def _pending_versions(progress: TableProgress, lake: Lake, messages_table: DeltaTable) -> Iterator[AddedVersion]:
    """Yield the Delta versions that are not in HBase yet; for a first load, one version with all files."""
    uri, options, newest = lake.uri("messages"), lake.storage_options, messages_table.version()
    try:
        if progress.version is not None:
            # All at once: writing their rows may take longer than temporary credentials are valid.
            yield from list(added_versions(uri, progress.version, options, last_version=newest))
            return
        assert progress.loading is not None  # either version or loading is set
        since = added_versions(uri, progress.loading, options, last_version=newest)
        removed = [file for version in since for file in version.removed]
        yield AddedVersion(newest, files_of_table(uri, messages_table).files, tuple(removed))
    except VersionGoneError as error:
        cure = "Drop the HBase table; the next archive run creates it again from the lake"
        raise HBaseError(f"{error}. {cure}") from None


def _write_or_delete_rows_of(
    runner: Runner | None, row_update: RowWritingTask, files: tuple[AddedFile, ...], rows_per_task: int
) -> int:
    _check_files_exist(row_update, files)
    rows = sum(rows_per_task if file.rows is None else file.rows for file in files)
    if runner is None or rows < rows_per_task:
        return process_files(row_update, files)
    return process_files_in_tasks(runner, row_update, files)


def _check_files_exist(row_update: RowWritingTask, files: tuple[AddedFile, ...]) -> None:
    if not files:
        return
    found = row_update.open_filesystem().get_file_info([file.name for file in files])
    for info in found:
        if info.type == pafs.FileType.NotFound:
            raise HBaseError(
                f"the data file {info.path} was deleted before its messages were written to HBase, perhaps by VACUUM. "
                "Drop the HBase table; the next archive run creates it again from the lake"
            )
