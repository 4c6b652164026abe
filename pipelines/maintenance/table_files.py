"""A table's data files as its log names them, and the commit that exchanges some of them for others.

The exchange is a compare-and-set on the table's version: it is tried on the newest version only, after a look that
every file to be removed is still there. Whoever appends meanwhile (an archive run, a stream) loses nothing and only
costs another try; whoever removed one of these files meanwhile was first.
"""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow.fs as pafs
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from commitlake.connectors.lake.delta import delta_table, seal, storage_options
from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.log_history import read_history
from commitlake.connectors.lake.versions import table_files
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.tables.messages import STORE_DATE

METADATA_KEY = "commitlake.maintain"
# An entry of the log that is past its time may be the only one with the archive's progress: see log_care.
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_MOST_TRIES = 100
_WAIT_SECONDS = 0.02


class ConcurrentMaintenanceError(CommitLakeError):
    """Somebody else took away files of this table meanwhile; nothing of this step was kept."""

    exit_code = ExitCode.REFUSED


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file that the newest version of a table has.

    Attributes:
        path: relative to the table's folder, as the log writes it.
        partition: its values by column; of tables without partitions empty.
        size: bytes.
        rows: rows; None where its writer did not say.
        modified_ms: when its rows came, ms since 1970.
        first_time: its least store_timestamp; None where that is not known.
        statistics: the log's JSON.
        has_deletions: whether some of its rows are deleted by a deletion vector.
    """

    path: str
    partition: dict[str, str | None]
    size: int
    rows: int | None
    modified_ms: int
    first_time: datetime.datetime | None = None
    statistics: str = "{}"
    has_deletions: bool = False

    @property
    def date(self) -> datetime.date:
        """The date by which its rows grow old: the partition's, or that of their arrival."""
        text = self.partition.get(STORE_DATE.name)
        if text is not None:
            return datetime.date.fromisoformat(text)
        return datetime.datetime.fromtimestamp(self.modified_ms / 1000, datetime.UTC).date()


def folder_of(table_uri: str) -> pafs.FileSystem:
    """A filesystem whose root is the table's folder, local or in an object store."""
    return table_files(table_uri, storage_options(table_uri))


def read_table_files(table: DeltaTable) -> list[TableFile]:
    """The data files of a table, in its log's order."""
    return [_table_file(action) for action in file_actions(table).to_pylist()]


def _table_file(action: dict[str, Any]) -> TableFile:
    partition = {name: None if value is None else str(value) for name, value in (action.get("partition") or {}).items()}
    return TableFile(
        path=action["path"],
        partition=partition,
        size=action["size_bytes"],
        rows=action.get("num_records"),
        modified_ms=action["modification_time"],
        first_time=(action.get("min") or {}).get("store_timestamp"),
        has_deletions=bool(action.get("deletion_vector")),
    )


def exchange_files(
    table_uri: str,
    removed: Sequence[TableFile],
    added: Sequence[TableFile],
    *,
    changes_data: bool,
    note: Mapping[str, Any],
    key: str = METADATA_KEY,
    transactions: Sequence[Transaction] = (),
    at_version: int | None = None,
) -> int:
    """One commit that takes files away and adds others.

    Args:
        table_uri: path or URI of the table.
        removed: files of the table.
        added: complete files that no version names yet.
        changes_data: whether other rows are there afterwards; where not, who follows the table sees no change.
        note: what is done, for the commit's metadata.
        key: what the note is called there.
        transactions: numbers of applications that the commit sets.
        at_version: the version that must still be the newest; any, where not given.

    Returns:
        The version.

    Raises:
        ConcurrentMaintenanceError: if one of `removed` is no longer in the table, or another version is the newest.
    """
    # The id tells this exchange from any other: see _version_of.
    metadata = json.dumps({key: {**note, "id": uuid.uuid4().hex}}, sort_keys=True)
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata}, max_commit_retries=0, app_transactions=list(transactions) or None
    )
    now = time.time_ns() // 1_000_000
    actions: list[AddAction | RemoveAction] = [
        *(RemoveAction(file.path, changes_data, now, file.size, file.partition) for file in removed),
        *(
            AddAction(file.path, file.size, file.partition, file.modified_ms, changes_data, file.statistics)
            for file in added
        ),
    ]
    for attempt in range(_MOST_TRIES):
        table = delta_table(table_uri)
        made = _version_of(table, metadata) if attempt else None
        if made is not None:
            return made
        if at_version is not None and table.version() != at_version:
            raise ConcurrentMaintenanceError(
                f"{table_uri}: expected version {at_version} as the newest, found {table.version()}: somebody else has "
                "changed the table meanwhile; nothing of this step was kept. Run it again"
            )
        there = {file.path for file in read_table_files(table)}
        gone = [file.path for file in removed if file.path not in there]
        if gone:
            raise ConcurrentMaintenanceError(
                f"{table_uri}: somebody else has replaced {len(gone)} files meanwhile ({gone[0]} is one), another "
                "'commitlake maintain' or an OPTIMIZE; nothing of this step was kept. Run it again when that is over"
            )
        partitions = list(table.metadata().partition_columns)
        try:
            table.create_write_transaction(
                actions,
                "append",
                table.schema(),
                partitions,
                commit_properties=properties,
                post_commithook_properties=NO_HOOKS,
            )
        except CommitFailedError:  # somebody else made a version; look again
            time.sleep(_WAIT_SECONDS * min(attempt, 10))
        else:
            seal(table_uri)
            return int(table.version()) + 1
    raise ConcurrentMaintenanceError(
        f"{table_uri}: others made a version first {_MOST_TRIES} times; nothing of this step was kept. Run it again"
    )


def _version_of(table: DeltaTable, metadata: str) -> int | None:
    """The version that a try has made after all: an object store's answer was lost, and its second one refused."""
    for entry in islice(read_history(table), _MOST_TRIES):
        if entry.metadata == metadata:
            return entry.version
    return None
