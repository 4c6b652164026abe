"""Delta tables by path or URI, for the deltalake package, with credentials for object stores.

A run opens each table of a lake several times. Opening a table reads its whole log since the newest checkpoint, which
takes six requests in an object store. A table that was opened before reads only newer entries, so it is kept.

A table belongs to one holder at a time, because deltalake changes it in place. When its holder releases it, it is kept
together with the names, sizes and times of the log files that it was read from. It is used again only while all of
these files are unchanged, and only where the log was checked as for a table that is opened anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError, check_log, check_sizes, seal_log
from commitlake.connectors.lake.delta_log.entries import OUTSIDE
from commitlake.connectors.lake.delta_log.file_actions import file_actions
from commitlake.connectors.lake.delta_log.files import LogFile, LogFolder, LogListing
from commitlake.connectors.lake.delta_log.versions import StorageOptions, table_files
from commitlake.connectors.storage.errors import S3Error
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import is_s3

MAX_KEPT = 24
"""Maximum number of tables kept in a process; a lake has twenty. The one released first is dropped first."""

_Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A table without a holder.

    Attributes:
        attributes: those of the table.
        listing: the files of its log when it was checked last.
    """

    attributes: dict[str, Any]
    listing: LogListing


# Only single operations of the dictionary are used: a table may be released at any moment, in any thread.
_kept: dict[_Key, _Kept] = {}


class LentTable(DeltaTable):
    """A table that is kept when its holder releases it, if `keep_later` was called."""

    _place: _Key | None = None
    _listing: LogListing | None = None

    def keep_later(self, uri: str, options: StorageOptions, listing: LogListing) -> None:
        """Keep the table when it is no longer used.

        Args:
            uri: path or URI of the table.
            options: deltalake's options for an object store.
            listing: the files of its log, which were checked; empty if they changed while the table was read.
        """
        if listing.newest >= 0:
            self._place, self._listing = _key(uri, options), listing

    def load_as_version(self, version: Any) -> None:
        """Load another version; the table is not kept."""
        self._place = None
        super().load_as_version(version)

    def __del__(self) -> None:
        """Keep the table's attributes; at the end of the interpreter, names of this module may be None."""
        if self._place is None or self._listing is None or _Kept is None:
            return
        if self.version() > self._listing.newest:
            return  # its newest entries were not listed, so a change of theirs would not be noticed
        _kept.pop(self._place, None)
        _kept[self._place] = _Kept(dict(self.__dict__), self._listing)
        with suppress(StopIteration, KeyError, RuntimeError):  # another thread did the same
            while len(_kept) > MAX_KEPT:
                del _kept[next(iter(_kept))]


def take(uri: str, options: StorageOptions) -> tuple[LentTable, LogListing] | None:
    """Take a kept table, and the files of the log that it was read from; None if there is no such table.

    The caller must update it, and check that the files are unchanged, see `is_continued`.

    Args:
        uri: path or URI of the table.
        options: deltalake's options for an object store.
    """
    kept = _kept.pop(_key(uri, options), None)
    if kept is None:
        return None
    table = LentTable.__new__(LentTable)
    table.__dict__.update(kept.attributes)
    table._place = None  # noqa: SLF001 (it is this module's)
    return table, kept.listing


def is_continued(before: LogListing, now: LogListing) -> bool:
    """Return whether a log has changed only by newer files, and by the deletion of what a newer checkpoint replaces.

    Args:
        before: the log's files when the table was read.
        now: its files.
    """
    old, new = _by_name(before), _by_name(now)
    return all(file.mtime_ns and new.get(name, file) == file for name, file in old.items()) and all(
        name in new or file.version < now.base for name, file in old.items()
    )


def forget() -> None:
    """Drop all kept tables."""
    _kept.clear()


def _key(uri: str, options: Mapping[str, str] | None) -> _Key:
    return uri, tuple(sorted((options or {}).items()))


def _by_name(listing: LogListing) -> dict[str, LogFile]:
    checkpoints = (part for parts in listing.checkpoints.values() for part in parts)
    return {file.name: file for file in (*listing.entries.values(), *checkpoints)}


def delta_table(uri: str, s3: S3Options | None = None) -> DeltaTable:
    """Open a table at its newest version.

    Args:
        uri: path or URI of the table.
        s3: the object store; by default that of the environment.

    Raises:
        TableNotFoundError: if there is none.
        LogDamagedError: if its log is damaged, or names files outside of the table.
        S3Error: if an object store requires credentials, and there are none.
        OSError: if an object store cannot be reached.
    """
    options = storage_options(uri, s3)
    table, listing = _open_again(uri, options) or _open(uri, options)
    state = (str(table.metadata().id), table.version())
    if _checked_states.get(uri) != state:
        _check_paths(uri, table)
        _checked_states[uri] = state
    table.keep_later(uri, options, listing)
    return table


def _open_again(uri: str, options: dict[str, str] | None) -> tuple[LentTable, LogListing] | None:
    kept = take(uri, options)
    if kept is None:
        return None
    table, before = kept
    try:
        listed = LogFolder(uri, options).read_entries()
        check_sizes(uri, options, listed)
        table.update_incremental()
    except DeltaError:
        return None
    listing = check_log(uri, options)
    is_whole = table.version() >= listing.newest and is_continued(before, listed) and is_continued(listed, listing)
    return (table, listing) if is_whole else None


def _open(uri: str, options: dict[str, str] | None) -> tuple[LentTable, LogListing]:
    try:
        before = LogFolder(uri, options).read_entries()
        if before.newest < 0:
            raise TableNotFoundError(f"{uri}: expected a table, found no log")
        check_sizes(uri, options, before)
        table = LentTable(uri, storage_options=options)
    except DeltaError:  # check_log names a damaged file; TableNotFoundError is a subclass
        check_log(uri, options)
        raise
    listing = check_log(uri, options)
    # A change during the read must not be taken for a part of what was read.
    return table, listing if is_continued(before, listing) else LogListing()


_checked_states: dict[str, tuple[str, int]] = {}
"""Id and version of each table whose paths this process has checked; an archive opens its tables several times a run.

Changes to a log without a new version are refused before, by `check_log`.
"""


def _check_paths(uri: str, table: DeltaTable) -> None:
    """Refuse a table whose log names files outside its folder, because an engine would read them.

    A shallow clone does so by design; it cannot be a table of a lake.
    """
    outside = next(filter(OUTSIDE.search, file_actions(table).column("path").to_pylist()), None)
    if outside is not None:
        raise LogDamagedError(
            f"{uri}: expected a log that names files of this table, found {outside!r}: another program has "
            f"written to it. {WAY_OUT}"
        )


def seal(uri: str, s3: S3Options | None = None) -> None:
    """Seal a table's log after a commit, see `delta_log.seals`; the commit stays valid if the seal cannot be written.

    Raises:
        LogDamagedError: if the log is damaged.
    """
    try:
        seal_log(uri, storage_options(uri, s3), s3)
    except (OSError, S3Error) as error:
        logging.getLogger(__name__).warning("the log of %s could not be sealed: %s", uri, error)


def folder_of(uri: str, s3: S3Options | None = None) -> pafs.FileSystem:
    """Return a filesystem whose root is a table's folder, local or in an object store; see `Lake.folder`."""
    return table_files(uri, storage_options(uri, s3))


def log_of(uri: str) -> LogFolder:
    """Return the log of a table; see `Lake.log`."""
    return LogFolder(uri, storage_options(uri))


def storage_options(uri: str, s3: S3Options | None = None) -> dict[str, str] | None:
    """Return deltalake's storage options for a table; None for a table in a folder.

    The options contain current credentials, which may expire, so a long run must call this again.

    Args:
        uri: path or URI of the table.
        s3: the object store; by default that of the environment.

    Raises:
        S3Error: if an object store requires credentials, and there are none.
    """
    if not is_s3(uri):
        return None
    from commitlake.connectors.storage.s3_clients import delta_options, s3_options

    return delta_options(s3 or s3_options())
