"""Permission errors: one message and exit code 2 for all places that this user may not read or write."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from commitlake.connectors.lake.paths import LakeError, LakePaths

_DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_TEXT = re.compile(r"permission denied|\(os error 13\)|access ?denied|status code:? 403|403 forbidden", re.IGNORECASE)
_PATH = re.compile(r"(?:s3a?:/|file:/)?/[^\s'\":,;()\[\]]+")
HINT = "Run as a user with permission, or change the permissions: a folder needs read and execute, a file read"


def denied_place(error: BaseException) -> str | None:
    """Return the place that a permission error is about; None for other errors."""
    for each in _chain(error):
        if isinstance(each, OSError) and each.errno in _DENIED:
            return str(each.filename or each)
    text = str(error)
    if not _TEXT.search(text):
        return None
    found = _PATH.search(text)
    return found[0].removeprefix("file://") if found else text.strip().splitlines()[0]


def check_lake_is_readable(lake: LakePaths) -> None:
    """Refuse a lake with unreadable parts, which the engines would treat as a lake that does not exist.

    Raises:
        LakeError: naming the folder or file.
    """
    if lake.s3 is not None:
        return
    root = Path(lake.root).absolute()
    for path in (*reversed(root.parents), root, *_parts(root)):
        try:
            is_folder = path.is_dir()
            if not path.exists():
                continue
        except PermissionError:
            raise _refusal(path) from None
        mode = os.R_OK if not is_folder else os.X_OK if path in root.parents else os.R_OK | os.X_OK
        if not os.access(path, mode, effective_ids=os.access in os.supports_effective_ids):
            raise _refusal(path)


def _parts(root: Path) -> Iterator[Path]:
    """Yield the folders of a lake's tables and of their logs, and the newest entry of each log."""
    for table in sorted(root.iterdir()) if root.is_dir() else ():
        yield table
        log = table / "_delta_log"
        if log.is_dir():
            yield log
            yield from sorted(log.glob("*.json"))[-1:]


def _refusal(path: Path) -> LakeError:
    return LakeError(f"{path}: permission denied for this user. {HINT}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__
