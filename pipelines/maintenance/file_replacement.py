"""Commits that replace some of the data files of a table.

A replacement is a compare-and-set on the table's version: it is tried only on the newest version, after checking that
every file to be removed is still there. A concurrent append (an archive run, a stream) loses nothing and only costs a
retry. If another process has removed one of these files first, the replacement fails.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from deltalake import CommitProperties, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from commitlake.connectors.lake.delta_log.file_actions import TableFile, read_table_files
from commitlake.connectors.lake.delta_log.files import LogFolder
from commitlake.connectors.lake.delta_log.history import read_history
from commitlake.connectors.lake.delta_log.row_sum_changes import (
    COMMIT_KEY,
    NOTHING_CHANGED,
    UNKNOWN,
    SumChange,
    compute_sum_change,
)
from commitlake.connectors.lake.delta_log.seals import read_newest_seal
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.connectors.lake.reader import clean_engine_message
from commitlake.connectors.lake.rows.data_files import DataFile
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.formatted_counts import format_count

METADATA_KEY = "commitlake.maintain"
# Hooks are off: an expired entry of the log may be the only one with the archive's progress; see log_cleanup.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_MAX_TRIES = 100
_MAX_REFUSALS = 3
"""Number of failed attempts, without a commit of another writer, after which the table itself is the reason."""
_WAIT_SECONDS = 0.02


class ConcurrentMaintenanceError(CommitLakeError):
    """Error because another process has removed the files in the meantime; nothing was committed."""

    exit_code = ExitCode.REFUSED


def new_table_file(file: DataFile, modified_ms: int | None = None) -> TableFile:
    """Return the log entry of a new data file without partition values; its time is `modified_ms`, by default now."""
    added = time.time_ns() // 1_000_000 if modified_ms is None else modified_ms
    return TableFile(file.path, {}, file.size, file.rows, added, statistics=file.statistics)


def replace_table_files(
    lake: Lake,
    table: str,
    removed_files: Sequence[TableFile],
    added_files: Sequence[TableFile],
    *,
    changes_data: bool,
    note: Mapping[str, Any],
    note_key: str = METADATA_KEY,
    transactions: Sequence[Transaction] = (),
    expected_version: int | None = None,
    sum_change: SumChange | None = None,
) -> int:
    """Remove files from a table and add others, in one commit.

    Args:
        table: name of the table.
        added_files: complete files that no version refers to yet.
        changes_data: True if the rows differ afterwards. If False, readers that follow the table see no change.
        note: description of the step, for the commit's metadata.
        note_key: name of the note in the metadata.
        transactions: numbers of applications to set in the commit.
        expected_version: the version that must still be the newest; None for any.
        sum_change: the change of the sum of the rows that this project has written; by default that of these files.

    Returns:
        The new version.

    Raises:
        ConcurrentMaintenanceError: if a file to remove is no longer in the table, or another version is the newest.
        LakeError: if the table needs features of another program that deltalake does not write.
    """
    # The id distinguishes this commit from any other; see _committed_version.
    metadata = json.dumps({note_key: {**note, "id": uuid.uuid4().hex}}, sort_keys=True)
    if sum_change is None:
        sum_change = _row_sum_change(lake, table, removed_files, added_files) if changes_data else NOTHING_CHANGED
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata, COMMIT_KEY: str(sum_change)},
        # deltalake would try again on a newer version without looking whether the files are still there.
        max_commit_retries=0,
        app_transactions=list(transactions) or None,
    )
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(file.path, changes_data, now, file.size, file.partition) for file in removed_files),
        *(
            AddAction(file.path, file.size, file.partition, file.modified_ms, changes_data, file.statistics)
            for file in added_files
        ),
    ]
    versions = []
    for attempt in range(_MAX_TRIES):
        opened = lake.table(table)
        versions.append(opened.version())
        made = _committed_version(lake.open_log(table), opened.version(), metadata) if attempt else None
        if made is not None:
            return made
        if expected_version is not None and opened.version() != expected_version:
            raise ConcurrentMaintenanceError(
                f"{lake.uri(table)}: another process has changed the table meanwhile: expected version "
                f"{expected_version} as the newest, found {opened.version()}; this change of the table was discarded. "
                "Run the command again"
            )
        there = {file.path for file in read_table_files(opened)}
        # Delta itself would accept a second removal of a file, and both additions that replace it: every row twice.
        gone = [file.path for file in removed_files if file.path not in there]
        if gone:
            raise ConcurrentMaintenanceError(
                f"{lake.uri(table)}: another 'commitlake maintain' or an OPTIMIZE has replaced "
                f"{format_count(len(gone), 'file')} meanwhile, such as {gone[0]}; this change of the table was "
                "discarded. Run the command again when the other one has finished"
            )
        partitions = list(opened.metadata().partition_columns)
        try:
            opened.create_write_transaction(
                actions,
                "append",
                opened.schema(),
                partitions,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError as error:  # another writer committed a version first; retry
            if versions[-_MAX_REFUSALS:] == [opened.version()] * _MAX_REFUSALS:
                raise LakeError(f"{lake.uri(table)} cannot be written: {clean_engine_message(str(error))}") from None
            time.sleep(_WAIT_SECONDS * min(attempt, 10))
        else:
            lake.seal_log(table)
            return int(opened.version()) + 1
    raise ConcurrentMaintenanceError(
        f"{lake.uri(table)}: other writers committed first at each of {_MAX_TRIES} attempts; this change of the table "
        "was discarded. Run the command again"
    )


def _row_sum_change(
    lake: Lake, table: str, removed_files: Sequence[TableFile], added_files: Sequence[TableFile]
) -> SumChange:
    from commitlake.connectors.lake.rows.row_sums import read_file_row_sums  # noqa: PLC0415 (loads compiled code)

    log = lake.open_log(table)
    seal, _ = read_newest_seal(log, log.read_listing())
    if seal is None or seal.row_sum is None:
        return UNKNOWN  # the files need not be read
    before = read_file_row_sums(lake.open_folder(table), (file.path for file in removed_files))
    return compute_sum_change([file.statistics for file in added_files], before)


def _committed_version(log: LogFolder, newest_version: int, metadata: str) -> int | None:
    """Return the version that an earlier attempt has committed although its answer was lost; None if none did."""
    for entry in islice(read_history(log, newest_version), _MAX_TRIES):
        if entry.metadata == metadata:
            return entry.version
    return None
