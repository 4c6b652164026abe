"""Detection of tables that are missing from a lake although other tables show that they existed."""

from __future__ import annotations

import pyarrow.fs as pafs
from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.delta import storage_options
from commitlake.connectors.lake.links import check_lake_links
from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.log_names import LOG
from commitlake.connectors.lake.paths import LakeError, LakePaths
from commitlake.connectors.lake.versions import table_files
from commitlake.schemas.tables.lake_tables import LAKE_TABLES


def followers_of(lake: LakePaths) -> list[str]:
    """Return the tables that follow `messages` and have a log."""
    try:
        files = table_files(lake.root, storage_options(lake.root, lake.s3))
    except TableNotFoundError:  # the folder does not exist
        return []
    return [
        table
        for table in LAKE_TABLES
        if table != "messages" and files.get_file_info(pafs.FileSelector(f"{table}/{LOG}", allow_not_found=True))
    ]


def has_log(lake: LakePaths, table: str) -> bool:
    """Return True if a table has any file of a log."""
    try:
        files = table_files(lake.root, storage_options(lake.root, lake.s3))
    except TableNotFoundError:
        return False
    return bool(files.get_file_info(pafs.FileSelector(f"{table}/{LOG}", allow_not_found=True)))


def check_writable(lake: LakePaths) -> None:
    """Refuse a place that an archive must not write to.

    Raises:
        LakeError: as `LakePaths.check_writable` does.
        LogDamagedError: if the lake has lost its table `messages`.
        UnsafeFileError: if the lake contains a link.
        S3Error: if an object store cannot be reached, or the bucket cannot be listed.
    """
    check_lake_links(lake)
    try:
        lake.check_writable()
    except LakeError:
        check_messages_are_there(lake)
        raise


def check_messages_are_there(lake: LakePaths) -> None:
    """Refuse a lake whose table `messages` has no log, although following tables have one.

    Raises:
        LogDamagedError: if the log of `messages` is missing.
    """
    if has_log(lake, "messages"):
        return
    others = followers_of(lake)
    if others:
        raise LogDamagedError(
            f"{lake.messages}: expected a table log in {LOG}, found none, but the lake has {' and '.join(others[:2])}, "
            f"which are derived from it. {WAY_OUT}"
        )
