"""The commit of an archive run to `messages`: files, sequence number and end offsets in one Delta commit, or nothing.

The commit is a compare-and-set, see `archive_log`: it fails where another run has written since this one read how far
the archive had come. That is decided by Delta's own conflict detection, on the application id.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from connectors.lake.archive_log import APPLICATION_ID, ArchiveCommit
from connectors.lake.data_files import DataFile
from schemas.tables.messages import MESSAGES, PARTITION_COLUMNS, STORE_DATE

_SCHEMA = Schema.from_json(MESSAGES.json())


class ConcurrentArchiveError(Exception):
    """Another run has written to this lake since this one read how far it had come; nothing of this one was kept."""


def open_for_append(messages_uri: str) -> DeltaTable:
    """The table as it is now, made where there is none.

    A run opens it before it writes its first file: what a run that was killed leaves then lies in a lake.
    """
    table = _open_or_create(messages_uri)
    known = {field.name for field in table.schema().fields}
    missing = [field for field in _SCHEMA.fields if field.name not in known]
    if missing:  # an earlier version made it; its rows have nulls there
        table.alter.add_columns(missing)
    return table


def commit_messages(table: DeltaTable, files: Iterable[DataFile], commit: ArchiveCommit) -> None:
    """Add the files of a run, and its progress, to the table.

    Args:
        table: from `open_for_append`.
        files: from `data_files.write_data_file`.
        commit: this run's; its sequence is one more than the newest that this run has seen.

    Raises:
        ConcurrentArchiveError: if another run wrote that sequence number first.
    """
    check_sequence(table, commit)
    properties = CommitProperties(
        custom_metadata={"userMetadata": commit.to_metadata()},
        app_transactions=[Transaction(APPLICATION_ID, commit.sequence)],
    )
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, {STORE_DATE.name: file.store_date}, now, True, file.statistics)
        for file in files
    ]
    partitions = list(PARTITION_COLUMNS)
    try:
        table.create_write_transaction(actions, "append", table.schema(), partitions, commit_properties=properties)
    except CommitFailedError as error:
        raise ConcurrentArchiveError(f"another run wrote archive commit {commit.sequence} at the same time") from error


def check_sequence(table: DeltaTable, commit: ArchiveCommit) -> None:
    """See whether a commit would be the table's next one.

    Raises:
        ConcurrentArchiveError: if another run has written its sequence number.
    """
    if (table.transaction_version(APPLICATION_ID) or 0) != commit.sequence - 1:
        raise ConcurrentArchiveError(f"another run wrote archive commit {commit.sequence} first")


def _open_or_create(messages_uri: str) -> DeltaTable:
    try:
        return DeltaTable(messages_uri)
    except TableNotFoundError:
        pass
    try:
        return DeltaTable.create(messages_uri, _SCHEMA, partition_by=list(PARTITION_COLUMNS))
    except DeltaError:  # another run has made it meanwhile
        return DeltaTable(messages_uri)
