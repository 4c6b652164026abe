"""New data files of `messages`, for the tables that are computed from its rows: `message_keys` and `edges`.

Each of these stores the version of `messages` that it has reached as an application transaction (Delta's `txn` action).
This module imports little, so that look-ups start quickly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow.fs as pafs
from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.versions import (
    AddedFile,
    AddedVersion,
    VersionGoneError,
    added_versions,
    files_of_table,
)
from commitlake.connectors.lake.erasures import newest_erasure_number
from commitlake.connectors.lake.lake import Lake


def processed_version(lake: Lake, table: str, application_id: str) -> int:
    """Return the Delta version of `messages` up to which a derived table has been computed; -1 if there is none.

    Args:
        table: name of the table.
        application_id: name of its transactions.
    """
    return read_processed_version(lake.find(table), application_id)


def read_processed_version(table: DeltaTable | None, application_id: str) -> int:
    """Return the Delta version of `messages` up to which an open derived table has been computed; -1 if there is none.

    Args:
        table: the table; None if it does not exist.
        application_id: name of its transactions.
    """
    version = None if table is None else table.transaction_version(application_id)
    return -1 if version is None else version


def processed_erasure_number(lake: Lake, table: str) -> int:
    """Return the number of the newest erasure of messages that a table has processed completely; 0 for none."""
    opened = lake.find(table)
    return 0 if opened is None else newest_erasure_number(opened)


@dataclass(frozen=True, slots=True)
class AddedFiles:
    """Data files of `messages` whose rows a derived table does not contain yet.

    Attributes:
        files: data files of `messages`.
        version: version of `messages` that is reached with these files.
        from_scratch: True if these are all files of `messages`, because new files alone can no longer be read.
    """

    files: Sequence[AddedFile]
    version: int
    from_scratch: bool = False


def readable_added_files(lake: Lake, after_version: int, followed_table: str = "messages") -> AddedFiles:
    """Return the files added to a table after a version; all its files if added files or log entries are gone.

    A vacuum deletes files after a compaction has written their rows to others. A follower that did not run for longer
    than `maintain --vacuum-after` starts again with all files.

    Args:
        after_version: the version; -1 for none.
        followed_table: name of the table that is followed.
    """
    # Both looks at the table below must see the same version.
    lake = lake.pin_versions()
    try:
        files, newest = added_files(lake, after_version, followed_table)
    except VersionGoneError:
        whole = files_of_table(lake.uri(followed_table), lake.table(followed_table))
        return AddedFiles(whole.files, whole.version, from_scratch=True)
    whole = files_of_table(lake.uri(followed_table), lake.table(followed_table)) if files else AddedVersion(newest, ())
    # A file that is still part of the table exists. Only one that a compaction has replaced may be deleted.
    replaced = sorted({file.name for file in files} - {file.name for file in whole.files})
    found = lake.open_folder(followed_table).get_file_info(replaced) if replaced else []
    if any(info.type == pafs.FileType.NotFound for info in found):
        return AddedFiles(whole.files, whole.version, from_scratch=True)
    return AddedFiles(files, newest)


def added_files(lake: Lake, after_version: int, followed_table: str = "messages") -> tuple[list[AddedFile], int]:
    """Return the data files added to a table after a version, even if deleted since, and the table's newest version.

    See `readable_added_files` for the arguments.

    Raises:
        VersionsError: if the log no longer has these versions, or rows were changed.
    """
    uri, opened = lake.uri(followed_table), lake.table(followed_table)
    if after_version < 0:  # the current files: earlier versions may have had files that no longer exist
        whole = files_of_table(uri, opened)
        return list(whole.files), whole.version
    files: list[AddedFile] = []
    newest = after_version
    for version in added_versions(uri, after_version, lake.storage_options, last_version=opened.version()):
        newest = version.version
        if version.is_erasure:  # its rows are not new, and readers of an older file skip erased messages
            continue
        if version.files:
            version.check_append_only()
        files += version.files
    return files, newest


def group_files(files: Iterable[AddedFile], max_rows: int, default_rows_per_file: int) -> Iterator[list[AddedFile]]:
    """Yield files in groups that fit into memory; a file with more rows is a group of its own.

    Args:
        files: files, in order.
        max_rows: maximum number of rows of a group.
        default_rows_per_file: assumed number of rows of a file without statistics.
    """
    group: list[AddedFile] = []
    rows = 0
    for file in files:
        count = default_rows_per_file if file.rows is None else file.rows
        if group and rows + count > max_rows:
            yield group
            group, rows = [], 0
        group.append(file)
        rows += count
    if group:
        yield group
