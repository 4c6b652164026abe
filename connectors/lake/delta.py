"""Delta tables by path or URI, for the deltalake package, with credentials for object stores.

Opening a table reads its whole log since the newest checkpoint, which takes six requests in an object store. Nothing is
kept here, because deltalake changes a table in place; see `PinnedLake` for what only reads.
"""

from __future__ import annotations

import logging

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError, check_log, check_log_sizes, seal_log
from commitlake.connectors.lake.delta_log.entries import OUTSIDE
from commitlake.connectors.lake.delta_log.file_actions import read_file_actions
from commitlake.connectors.lake.delta_log.files import LogFolder
from commitlake.connectors.lake.paths import local_folder_or_none
from commitlake.connectors.storage.errors import S3Error
from commitlake.connectors.storage.s3_options import S3Options


def open_delta_table(uri: str, s3: S3Options | None = None) -> DeltaTable:
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
    try:
        # Listed without deltalake: opening parses the log, and a huge entry of another program would take minutes and
        # fill the memory.
        before = LogFolder(uri, options).list_entry_files()
        if before.newest_version < 0:
            raise TableNotFoundError(f"{uri}: expected a Delta table, found no log of one")
        check_log_sizes(uri, options, before)
        table = DeltaTable(uri, storage_options=options)
    except DeltaError:  # check_log names a damaged file; TableNotFoundError is a subclass
        check_log(uri, options)
        raise
    # After the table is opened, so that damage that happened in between is found, too.
    check_log(uri, options)
    state = (str(table.metadata().id), table.version())
    if _checked_states.get(uri) != state:
        _check_file_paths(uri, table)
        _checked_states[uri] = state
    return table


_checked_states: dict[str, tuple[str, int]] = {}
"""Id and version of each table whose paths this process has checked.

What a version names does not change: a log that was changed without a new version is refused before, by `check_log`.
So the fact holds for every `Lake` of the process: an archive opens its tables several times a run, and `metrics` a new
lake for each scrape. There is one entry for each table.
"""


def _check_file_paths(uri: str, table: DeltaTable) -> None:
    """Refuse a table whose log names files outside the table's folder, because an engine would read them.

    A shallow clone does so by design; it cannot be a table of a lake.
    """
    outside = next(filter(OUTSIDE.search, read_file_actions(table).column("path").to_pylist()), None)
    if outside is not None:
        raise LogDamagedError(
            f"{uri}: the table's log names {outside!r}, which is not in the table's folder: another program has "
            f"written to the log. {WAY_OUT}"
        )


def seal_log_after_commit(uri: str, s3: S3Options | None = None) -> None:
    """Store checksums of a table's log after a commit, to detect damage later; if that fails, only log a warning.

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
    if local_folder_or_none(uri) is not None:
        return None
    from commitlake.connectors.storage.s3_clients import delta_options, s3_options

    return delta_options(s3 or s3_options())
