"""The changes of each version of a Delta table, for tables that are updated version by version.

    for version in added_versions(lake.uri("messages"), after=progress):
        write(version.files)                       # each read through `table_filesystem(lake.uri("messages"))`
        progress = version.version

The versions are read from the log's own commit files, which contain facts that the rows do not. An OPTIMIZE writes
every row again but marks its files as no change of data, so its version here adds nothing. A DELETE, UPDATE, MERGE or
overwrite removes files and may add others that contain the same rows again: `removed` lists the removed files, so a
follower can refuse (`check_append_only`) or delete their rows. Source: the Delta protocol, "Actions".

By default, commit files are deleted after 30 days, and only checkpoints remain. A new reader, or one that is further
behind, reads the whole table as one version: `files_of_table`.

No library does this: `deltalake` lists the files of one version, but neither the files that a version removed nor
whether a commit changed data. Its `load_cdf` and Spark's change data feed return rows, and only of tables with change
data feed enabled.

VersionsError
├── VersionGoneError      the log no longer has a version, or never had it because the table was recreated
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from commitlake.connectors.arrays_without_pandas import to_numpy_numbers
from commitlake.connectors.lake.delta_log.entries import parse_json, parse_row_count
from commitlake.connectors.lake.delta_log.file_actions import (
    PARTITION,
    column_bounds_per_file,
    read_file_actions,
    read_table_files,
)
from commitlake.connectors.lake.delta_log.file_names import LOG
from commitlake.connectors.storage.uris import absolute_path_or_uri, is_uri
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.times import epoch_us

StorageOptions = Mapping[str, str] | None
_TIME_TYPE = pa.timestamp("us", "UTC")
ERASURE_KEY = "commitlake.erase"
"""Mark of an erasure's commit in `userMetadata`."""


class VersionsError(CommitLakeError):
    """Base class of this module's errors; the message is for a user."""

    exit_code = ExitCode.FAILED


class VersionGoneError(VersionsError):
    """A version is not in the table's log."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """Parquet file that belongs to a version of a table.

    Attributes:
        path: complete path or URI; not encoded.
        name: path relative to the table's folder, for `table_filesystem`.
        store_date: value of the partition `store_date`, as text; None for a null, and in tables without it.
        size: size in bytes.
        rows: number of rows; None if its writer did not record it.
        first_time: smallest `store_timestamp`; None if unknown, and for files from `added_versions`.
        last_time: largest `store_timestamp`; None in the same cases.
        modified_ms: time at which its rows were added, ms since 1970; 0 for files from `added_versions`.
    """

    path: str
    name: str
    store_date: str | None
    size: int
    rows: int | None
    first_time: datetime.datetime | None = None
    last_time: datetime.datetime | None = None
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class AddedVersion:
    """Data files that one version of a table added and removed.

    Attributes:
        version: number of the version.
        files: files that it added, in the log's order; empty if it changed no rows.
        removed: files that it removed. If some of their rows were kept, `files` has these rows again.
        is_erasure: whether `erase` made it: `files` has the rows of `removed`, some of them without their contents.
    """

    version: int
    files: tuple[AddedFile, ...]
    removed: tuple[AddedFile, ...] = ()
    is_erasure: bool = False

    @property
    def row_count(self) -> int | None:
        """Return the number of added rows; None if it is unknown for one of the files."""
        counts = [file.rows for file in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    def check_append_only(self) -> None:
        """Refuse a version that removed rows.

        Raises:
            VersionsError: if it did.
        """
        if self.removed:
            raise VersionsError(
                f"version {self.version} removes {format_count(len(self.removed), 'file')}, expected that it only adds "
                "some: rows were deleted or changed. Rebuild the tables that are derived from this one"
            )


def added_versions(
    table_uri: str, after_version: int, storage_options: StorageOptions = None, *, last_version: int | None = None
) -> Iterator[AddedVersion]:
    """Yield the versions after a given one, oldest first.

    Args:
        table_uri: path or URI of the table.
        after_version: number of the last processed version; -1 for none.
        storage_options: deltalake's options for an object store.
        last_version: number of the last version to yield; by default the newest at the time of the call.

    Raises:
        VersionGoneError: if a version's commit file no longer exists, or `after_version` is newer than the table.
        VersionsError: if files contain more than the table's rows.
    """
    if last_version is None:
        last_version = _open_delta_table(table_uri, storage_options).version()
    if after_version > last_version:
        raise VersionGoneError(
            f"the newest version of {table_uri} is {last_version}, expected {after_version} or later: the table was "
            "created again, or restored to an earlier version. Rebuild the tables that are derived from it"
        )
    return _read_versions(table_uri, range(after_version + 1, last_version + 1), storage_options)


@dataclass(frozen=True, slots=True)
class ChangedFiles:
    """Data files that one version of a table added and removed, also without a change of its rows, as an OPTIMIZE does.

    Attributes:
        version: number of the version.
        added: the log's actions for the files that it added, by the files' names relative to the table's folder.
        removed: names of the files that it removed.
        is_vacuum: whether it says that files of earlier versions were deleted.
    """

    version: int
    added: Mapping[str, Mapping[str, Any]]
    removed: frozenset[str]
    is_vacuum: bool


def changed_files(
    table_uri: str, versions: Iterable[int], storage_options: StorageOptions = None
) -> Iterator[ChangedFiles]:
    """Yield what each of some versions of a table changed, see `ChangedFiles`.

    Raises:
        VersionGoneError: if a version's commit file no longer exists.
        VersionsError: if it is damaged, or files contain more than the table's rows.
    """
    filesystem = table_filesystem(table_uri, storage_options)
    for version in versions:
        actions = _read_actions(table_uri, version, filesystem)
        with _naming_damage(table_uri, version):
            adds = [action["add"] for action in actions if "add" in action]
            added = {_to_added_file(table_uri, add).name: add for add in adds}  # which refuses what is no plain file
            removed = frozenset(unquote(action["remove"]["path"]) for action in actions if "remove" in action)
            operations = [str(action["commitInfo"].get("operation")) for action in actions if "commitInfo" in action]
        yield ChangedFiles(version, added, removed, any(operation.startswith("VACUUM") for operation in operations))


def files_of_table(table_uri: str, table: DeltaTable) -> AddedVersion:
    """Return all data files of an open table, as if one version had added them.

    Raises:
        VersionsError: if files contain more than the table's rows.
    """
    files = []
    for file in read_table_files(table):
        if file.has_deletions:
            raise _deletion_vector_error(file.path)
        added = _make_added_file(table_uri, file.path, file.partition.get(PARTITION), file.size, file.rows)
        files.append(replace(added, modified_ms=file.modified_ms, first_time=file.first_time, last_time=file.last_time))
    return AddedVersion(table.version(), tuple(files))


def files_in_time_range(
    table_uri: str, table: DeltaTable, column: str, start: datetime.datetime, end: datetime.datetime
) -> list[AddedFile]:
    """Return the files of a table that may have rows in a time range, according to its log.

    Args:
        table_uri: path or URI of the table.
        table: the opened table.
        column: the timestamp column.
        start: earliest time.
        end: latest time, exclusive.

    Raises:
        VersionsError: if files contain more than the table's rows.
    """
    actions = read_file_actions(table)
    _check_deletion_vectors(actions)
    least, greatest = column_bounds_per_file(actions, column, _TIME_TYPE)
    # A file without statistics may have rows of any time.
    firsts, lasts = (
        to_numpy_numbers(least, null_value=epoch_us(start)),
        to_numpy_numbers(greatest, null_value=epoch_us(start)),
    )
    is_chosen = ((firsts < epoch_us(end)) & (lasts >= epoch_us(start))).tolist()
    paths, sizes, rows = (actions.column(name).to_pylist() for name in ("path", "size_bytes", "num_records"))
    chosen = compress(zip(paths, sizes, rows, strict=True), is_chosen)
    return [_make_added_file(table_uri, path, None, size, count) for path, size, count in chosen]


def _check_deletion_vectors(actions: pa.Table) -> None:
    if "deletion_vector" not in actions.column_names:
        return
    vectors = actions.column("deletion_vector")
    if vectors.null_count < len(vectors):
        raise _deletion_vector_error(actions.column("path").filter(vectors.is_valid())[0].as_py())


def table_filesystem(table_uri: str, storage_options: StorageOptions = None) -> pafs.FileSystem:
    """Return a filesystem whose root is the table's folder; each process creates its own."""
    options = None if storage_options is None else dict(storage_options)
    return pafs.PyFileSystem(DeltaStorageHandler(table_uri, options))


def _open_delta_table(table_uri: str, storage_options: StorageOptions) -> DeltaTable:
    return DeltaTable(table_uri, storage_options=None if storage_options is None else dict(storage_options))


def _read_versions(table_uri: str, versions: range, storage_options: StorageOptions) -> Iterator[AddedVersion]:
    files = table_filesystem(table_uri, storage_options)
    for version in versions:
        yield _read_version(table_uri, version, files)


def _read_version(table_uri: str, version: int, filesystem: pafs.FileSystem) -> AddedVersion:
    actions = _read_actions(table_uri, version, filesystem)
    with _naming_damage(table_uri, version):
        # An OPTIMIZE writes the same rows again and says so: no change of data.
        added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
        removed = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange")]
        return AddedVersion(
            version,
            tuple(_to_added_file(table_uri, action) for action in added),
            tuple(_to_added_file(table_uri, action) for action in removed),
            any(_is_erasure(action.get("commitInfo")) for action in actions),
        )


def _read_actions(table_uri: str, version: int, filesystem: pafs.FileSystem) -> list[dict[str, Any]]:
    try:
        with filesystem.open_input_stream(f"{LOG}/{version:020d}.json") as commit:
            data = commit.readall()
    except FileNotFoundError:
        raise VersionGoneError(
            f"version {version} of {table_uri} is no longer in its log: expected the file {version:020d}.json "
            "there. Rebuild the tables that are derived from it; next time, update them before the log is cleaned "
            "(delta.logRetentionDuration)"
        ) from None
    with _naming_damage(table_uri, version):
        return [parse_json(line) for line in data.splitlines() if line.strip()]


@contextmanager
def _naming_damage(table_uri: str, version: int) -> Iterator[None]:
    """Convert the errors of reading a damaged entry of a log to a `VersionsError`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise VersionsError(
            f"version {version} of {table_uri}: {LOG}/{version:020d}.json is damaged: expected actions of a Delta log, "
            f"found {type(error).__name__}: {str(error)[:200]}",
            exit_code=ExitCode.DAMAGE,
        ) from None


def _is_erasure(commit_metadata: object) -> bool:
    """Return True if a commit's metadata marks it as an erasure of messages."""
    try:
        return isinstance(commit_metadata, dict) and ERASURE_KEY in parse_json(
            commit_metadata.get("userMetadata") or "{}"
        )
    except (ValueError, TypeError):  # written by another program
        return False


def _to_added_file(table_uri: str, action: dict[str, Any]) -> AddedFile:
    if action.get("deletionVector"):
        raise _deletion_vector_error(action["path"])
    date = (action.get("partitionValues") or {}).get(PARTITION) or None  # an empty text also means null
    return _make_added_file(
        table_uri, action["path"], date, action.get("size") or 0, parse_row_count(action.get("stats"))
    )


def _make_added_file(table_uri: str, encoded_path: str, date: str | None, size: int, rows: int | None) -> AddedFile:
    name = unquote(encoded_path)
    if is_uri(name) or name.startswith(("/", "file:")):
        raise VersionsError(
            f"the table in {table_uri} refers to the file {name} outside its folder, as a shallow clone does, which "
            "is not supported: 'commitlake maintain --repair' undoes such a version",
            exit_code=ExitCode.DAMAGE,
        )
    root = absolute_path_or_uri(table_uri)
    return AddedFile(f"{root.rstrip('/')}/{name}", name, date, size, rows)


def _deletion_vector_error(path: str) -> VersionsError:
    return VersionsError(
        f"the file {unquote(path)} has a deletion vector: expected files that hold just the table's rows. "
        "Set delta.enableDeletionVectors = false and REORG TABLE … APPLY (PURGE)",
        exit_code=ExitCode.DAMAGE,
    )
