"""The commit of an archive run to `messages`: files, sequence number and end offsets, atomically in one Delta commit.

The commit is a compare-and-set, see `archive_commits`: it fails if another run has committed since this one read the
archive's progress. Delta's own conflict detection decides that, by the application id.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from commitlake.connectors.lake.archive_commits import (
    APPLICATION_ID,
    ArchiveCommit,
    StoreProgress,
    commits_after,
    read_last_commit,
)
from commitlake.connectors.lake.backoff import MAX_TRIES
from commitlake.connectors.lake.delta_log.row_sum_changes import COMMIT_KEY, compute_sum_change
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.connectors.lake.rows.small_table_files import write_plain_file
from commitlake.schemas.errors import ConcurrentRunError
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.safe_store_files import make_folders
from commitlake.schemas.tables.columns import Columns
from commitlake.schemas.tables.lake_tables import LAKE_TABLES
from commitlake.schemas.tables.messages import PARTITION_COLUMNS

_MAX_ATTEMPTS = 50  # after errors caused by commits of other writers


def open_messages_for_append(lake: Lake) -> DeltaTable:
    """Open the table `messages`, or create it.

    A run opens it before it writes its first file, so the files of a killed run are always in a lake.
    """
    return open_or_create_table(lake, "messages", partition_columns=LAKE_TABLES["messages"].partitions)


def commit_run(
    lake: Lake, files: Sequence[DataFile], commit: ArchiveCommit, progress_at_start: Mapping[str, StoreProgress]
) -> ArchiveCommit:
    """Commit a run's files and progress to `messages`.

    If another run for other stores has committed first, this run's commit is made after that one.

    Args:
        files: results of `data_files.write_data_file`.
        commit: this run's commit; its sequence is one more than the newest that this run has read.
        progress_at_start: progress of each store when this run was planned.

    Returns:
        The commit that was made.

    Raises:
        ConcurrentRunError: if another run has archived some of the same stores meanwhile.
    """
    for _ in range(_MAX_ATTEMPTS):
        # Opened anew for each attempt, because Delta compares with the version that was opened.
        table = lake.table("messages")
        try:
            commit_messages(table, files, commit)
        except ConcurrentRunError:
            last = read_last_commit(lake)
            if last is None:  # the table was deleted and created again
                raise
            own = [made for made in commits_after(lake, commit.sequence - 1) if made.run_id == commit.run_id]
            # The commit succeeded, but the object store's answer was lost, and the repeated request was refused.
            if own:
                return own[0]
            # Only progress of this run's own stores counts. Runs over different stores do not block each other.
            taken = [broker for broker in commit.ranges if last.stores.get(broker) != progress_at_start.get(broker)]
            if taken:
                raise ConcurrentRunError(
                    f"another run has archived {_format_brokers(taken)} meanwhile (archive commit {last.sequence}); "
                    "nothing of this run was kept. Run the command again to archive the rest"
                ) from None
            commit = commit.rebase_onto(last)
        else:
            # After the commit, so a killed run leaves an entry without a seal, which the next commit seals.
            lake.seal_log("messages")
            return commit
    raise ConcurrentRunError(
        f"other runs committed to the lake first at each of {_MAX_ATTEMPTS} attempts; nothing of this run was kept. "
        "Run the command again"
    )


def _format_brokers(brokers: Sequence[str]) -> str:
    return brokers[0] if len(brokers) == 1 else f"{brokers[0]} and {format_count(len(brokers) - 1, 'more store')}"


def commit_messages(table: DeltaTable, files: Iterable[DataFile], commit: ArchiveCommit) -> None:
    """Commit a run's files to `messages` under its run number, unless another run has used that number.

    Args:
        table: the opened table.
        files: as for `commit_run`.
        commit: as for `commit_run`.

    Raises:
        ConcurrentRunError: if another run wrote that sequence number first.
    """
    # Delta finds conflicts with commits made since the table was opened. This finds one that was made before.
    if (table.transaction_version(APPLICATION_ID) or 0) != commit.sequence - 1:
        raise ConcurrentRunError(f"another run wrote archive commit {commit.sequence} first; this run did not write it")
    properties = CommitProperties(
        custom_metadata={"userMetadata": commit.to_metadata()},
        app_transactions=[Transaction(APPLICATION_ID, commit.sequence)],
    )
    try:
        _add_files(table, files, PARTITION_COLUMNS, properties)
    except CommitFailedError as error:
        raise ConcurrentRunError(
            f"another run wrote archive commit {commit.sequence} at the same time; this run did not write it"
        ) from error


def append_files(
    lake: Lake, table_name: str, files: Sequence[DataFile], sequence: int, columns: Columns | None = None
) -> None:
    """Add a run's files to a table that is updated after `messages`; do nothing if the table already has them.

    Args:
        table_name: name of the table, which is created if it does not exist.
        files: files without a partition.
        sequence: number of the run.
        columns: the table's columns, if they are not the declared ones.
    """
    table = open_or_create_table(lake, table_name, columns)
    properties = CommitProperties(app_transactions=[Transaction(APPLICATION_ID, sequence)])
    for attempt in range(_MAX_ATTEMPTS):
        # The number rises in the same commit as the rows appear, so a repeated call cannot add them twice.
        if sequence <= (table.transaction_version(APPLICATION_ID) or 0):
            return
        try:
            _add_files(table, files, (), properties)
        except CommitFailedError:  # another run finishes this one, or has appended its own files
            if attempt == _MAX_ATTEMPTS - 1:
                raise
            table = lake.table(table_name)
        else:
            lake.seal_log(table_name)
            return


def append_rows(lake: Lake, table_name: str, rows: pa.Table) -> None:
    """Append a few rows to a table; a call that is repeated appends them again.

    Args:
        table_name: name of the table, which is created if it does not exist.
        rows: the rows, with columns of the table.
    """
    table = open_or_create_table(lake, table_name)
    # Written once, outside the loop: the attempts commit the same file.
    file = write_plain_file(rows, lake, table_name, f"part-{secrets.token_hex(16)}.zstd.parquet")
    for attempt in range(MAX_TRIES):
        try:
            _add_files(table, [file], (), CommitProperties())
            break
        except CommitFailedError:  # another process created the table, or changed its columns, at the same time
            if attempt == MAX_TRIES - 1:
                raise
            table = open_or_create_table(lake, table_name)
    lake.seal_log(table_name)


def commit_with_transaction(
    lake: Lake,
    table_name: str,
    files: Iterable[DataFile],
    application_id: str,
    transaction_step: tuple[int | None, int],
    *,
    replaces_all_files: bool = False,
    other_transactions: Mapping[str, tuple[int, int]] | None = None,
    removed_files: Sequence[tuple[str, int]] = (),
    columns: Columns | None = None,
) -> bool:
    """Add files to a table and increase an application's transaction number; do nothing if another process was first.

    Args:
        table_name: name of the table, which is created if it does not exist.
        files: files without a partition.
        application_id: name of the application.
        transaction_step: progress number before the change (None for none), and after it.
        replaces_all_files: whether the files replace all files of the table.
        other_transactions: for other applications, the expected number (0 for none) and the new one.
        removed_files: path and size in bytes of files to remove from the table. If another writer has removed one,
            nothing is committed.
        columns: the table's columns, if they are not the declared ones.

    Returns:
        True if the files were added; False if another process was first, and nothing has changed.
    """
    table = open_or_create_table(lake, table_name, columns)
    before, after = transaction_step
    if table.transaction_version(application_id) != before:
        return False
    others = other_transactions or {}
    if any((table.transaction_version(other) or 0) != expected for other, (expected, _) in others.items()):
        return False
    sums: Iterable[int | None] = ()
    # Read before the commit: afterwards a vacuum may delete the files.
    if removed_files:
        from commitlake.connectors.lake.rows.row_sums import read_file_row_sums  # loads compiled code

        sums = read_file_row_sums(lake.open_folder(table_name), (path for path, _ in removed_files))
    transactions = [
        Transaction(application_id, after),
        *(Transaction(other, new) for other, (_, new) in others.items()),
    ]
    try:
        properties = CommitProperties(app_transactions=transactions)
        mode: Literal["append", "overwrite"] = "overwrite" if replaces_all_files else "append"
        _add_files(table, files, (), properties, mode, removed_files, sums)
    except CommitFailedError:
        return False
    lake.seal_log(table_name)
    return True


def _add_files(
    table: DeltaTable,
    files: Iterable[DataFile],
    partition_columns: Sequence[str],
    properties: CommitProperties,
    mode: Literal["append", "overwrite"] = "append",
    removed_files: Sequence[tuple[str, int]] = (),
    removed_row_sums: Iterable[int | None] = (),
) -> None:
    files = list(files)
    now = time.time_ns() // 1_000_000
    change = compute_sum_change(
        [file.statistics for file in files], removed_row_sums, replaces_all_files=mode == "overwrite"
    )
    properties.custom_metadata = {**(properties.custom_metadata or {}), COMMIT_KEY: str(change)}
    actions: list[AddAction | RemoveAction] = [RemoveAction(path, True, now, size, {}) for path, size in removed_files]
    actions += [
        AddAction(file.path, file.size, dict.fromkeys(partition_columns, file.store_date), now, True, file.statistics)
        for file in files
    ]
    # Only the log is written. The files are there already, and become part of the table by this one entry.
    table.create_write_transaction(actions, mode, table.schema(), list(partition_columns), commit_properties=properties)


def open_or_create_table(
    lake: Lake, table_name: str, columns: Columns | None = None, partition_columns: Sequence[str] = ()
) -> DeltaTable:
    """Open a table, or create it; add columns that the table does not have because an earlier version created it.

    Args:
        table_name: name of the table.
        columns: its columns, if they are not the declared ones.
        partition_columns: columns of its partitions; none if all of its files are without one.
    """
    wanted = Schema.from_json((columns or LAKE_TABLES[table_name].columns).to_json())
    table = _open_or_create_once(lake, table_name, wanted, partition_columns)
    known = {field.name for field in table.schema().fields}
    missing = [field for field in wanted.fields if field.name not in known]
    if missing:  # existing rows have nulls there
        table.alter.add_columns(missing)
    return table


def _open_or_create_once(lake: Lake, table_name: str, schema: Schema, partition_columns: Sequence[str]) -> DeltaTable:
    table, uri = lake.find(table_name), lake.uri(table_name)
    if table is not None:
        return table
    if lake.s3 is None:
        # deltalake would create folders that everybody can enter, and would follow a link.
        make_folders(Path(uri), trusted_root=Path(uri).parent)
    try:
        return DeltaTable.create(
            uri, schema, partition_by=list(partition_columns), storage_options=lake.storage_options
        )
    except DeltaError:  # another run has created it meanwhile
        if (table := lake.find(table_name)) is None:
            raise
        return table
