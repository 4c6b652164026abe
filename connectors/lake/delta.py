"""Delta tables by path or URI, for the deltalake package, with credentials for object stores."""

from __future__ import annotations

import logging

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from commitlake.connectors.lake.file_actions import file_actions
from commitlake.connectors.lake.kept_tables import LentTable, is_continued, take
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError, check_log, check_sizes, seal_log
from commitlake.connectors.lake.log_files import LogFolder, LogListing
from commitlake.connectors.lake.log_json import OUTSIDE
from commitlake.connectors.storage.errors import S3Error
from commitlake.connectors.storage.s3_options import S3Options
from commitlake.connectors.storage.uris import is_s3


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
    """Seal a table's log after a commit, see `log_seals`; the commit stays valid if the seal cannot be written.

    Raises:
        LogDamagedError: if the log is damaged.
    """
    try:
        seal_log(uri, storage_options(uri, s3), s3)
    except (OSError, S3Error) as error:
        logging.getLogger(__name__).warning("the log of %s could not be sealed: %s", uri, error)


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
