"""Places that cannot be read: a message and exit code 2 if access is denied, or if a folder is not a folder."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from commitlake.connectors.lake.delta_log.file_names import LOG, SEALS
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError
from commitlake.schemas.safe_store_files import describe_file_type
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_TEXT = re.compile(r"permission denied|\(os error 13\)|access ?denied|status code:? 403|403 forbidden", re.IGNORECASE)
_PATH = re.compile(r"(?:s3a?:/|file:/)?/[^\s'\":,;()\[\]]+")
HINT = "Run as a user with permission, or change the permissions: a folder needs read and execute, a file read"


def path_of_permission_error(error: BaseException) -> str | None:
    """Return the path in a permission error; None for other errors."""
    for each in _error_chain(error):
        if isinstance(each, OSError) and each.errno in _DENIED:
            return str(each.filename or each)
    text = str(error)
    if not _TEXT.search(text):
        return None
    found = _PATH.search(text)
    return found[0].removeprefix("file://") if found else text.strip().splitlines()[0]


def check_lake_is_readable(lake: Lake) -> None:
    """Raise an error if a lake contains links or unreadable parts, which query engines report as missing.

    Raises:
        LakeError: for an unreadable folder or file.
        UnsafeFileError: for a link.
    """
    if lake.s3 is not None:
        return
    root = Path(lake.root).absolute()
    _check_lake_folders(root)
    lake.check_links()
    for path in (*reversed(root.parents), root, *_table_and_log_paths(root)):
        try:
            is_folder = path.is_dir()
            if not path.exists():
                continue
        except PermissionError:
            raise _access_denied_error(path) from None
        mode = os.R_OK if not is_folder else os.X_OK if path in root.parents else os.R_OK | os.X_OK
        if not os.access(path, mode, effective_ids=os.access in os.supports_effective_ids):
            raise _access_denied_error(path)


def _check_lake_folders(root: Path) -> None:
    """Check that the lake, its tables and their logs are folders, as far as they exist."""
    tables = [root / table for table in LAKE_TABLES]
    found_folders = []
    for path in (root, *tables, *(table / name for table in tables for name in (LOG, SEALS))):
        try:
            mode = path.stat().st_mode if path.exists() else path.lstat().st_mode
        except PermissionError:
            raise _access_denied_error(path) from None
        except OSError:  # the path does not exist, or a parent is not a folder
            continue
        if not stat.S_ISDIR(mode):
            found = f"{describe_file_type(mode)} that leads nowhere" if stat.S_ISLNK(mode) else describe_file_type(mode)
            what = "the folder of a lake" if path == root else "a folder"
            raise LakeError(f"{path}: expected {what}, found {found}")
        found_folders.append(path)
    for path in found_folders[1:]:
        _check_folder_entries(path)


def _check_folder_entries(folder: Path) -> None:
    """Check that a table, its partitions or its log have only files and folders; engines would wait for a FIFO forever.

    A folder in the place of a log's entry is found by `connectors.lake`, which knows how to restore the entry.
    """
    others, partitions = [], []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):  # nearly all are, and a table may have very many
                    continue
                path = folder / entry.name
                if entry.is_symlink():  # in a partition, or a log, which `check_lake_links` does not check
                    others.append(path)
                elif entry.is_dir():
                    if "=" in entry.name:
                        partitions.append(path)
                elif not entry.is_file():
                    others.append(path)
    except PermissionError:
        raise _access_denied_error(folder) from None
    for path in sorted(others):
        raise LakeError(f"{path}: expected a file, found {describe_file_type(path.lstat().st_mode)}: move it elsewhere")
    for partition in partitions:
        _check_folder_entries(partition)


def _table_and_log_paths(root: Path) -> Iterator[Path]:
    """Yield the paths of a lake's tables, of their Delta logs, and of each log's newest entry."""
    for table in sorted(root.iterdir()) if root.is_dir() else ():
        yield table
        log = table / LOG
        if log.is_dir():
            yield log
            yield from sorted(log.glob("*.json"))[-1:]


def _access_denied_error(path: Path) -> LakeError:
    return LakeError(f"{path}: permission denied for this user. {HINT}")


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and, one after another, its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
