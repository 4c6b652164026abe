"""Folders from which this user runs code: nobody else may put files into them. Standard library only.

Compiled functions and packages that were sent to executors are loaded and run. The folder of such a cache can be chosen
by a variable (`XDG_CACHE_HOME`, `NUMBA_CACHE_DIR`) and may then be in a place where other users can create folders,
such as `/tmp`: whoever creates it first could plant code. Names in it follow from public sources, so they can be
guessed.

Executors run this module before they have the other packages.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from commitlake.schemas.errors import CommitLakeError, ExitCode

_OF_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_NOT_USED = "no code is run from it"


class SharedFolderError(CommitLakeError):
    """Error for a folder that other users can change, so that running code from it would not be safe."""

    exit_code = ExitCode.REFUSED


def make_private_folder(path: Path, mode: int = 0o755, owners: Collection[int] = ()) -> None:
    """Create a folder that only this user can write to, with its missing parents; check it if it exists.

    Whoever can write to the folder above can put another folder in place of this one. If that belongs to this user,
    too, others lose the right to write to it.

    Args:
        path: path of the folder.
        mode: mode of a new folder, less the umask.
        owners: further users that both folders may belong to; those of this process and of the system always may.

    Raises:
        SharedFolderError: if one of the two belongs to another user, or others can write to it.
        OSError: if the folder cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    above = path.parent.stat()
    if above.st_uid == os.geteuid() and _is_replaceable_by_others(above):
        path.parent.chmod(stat.S_IMODE(above.st_mode) & ~_OF_OTHERS)
    elif above.st_uid not in owners:
        _check_owner(path.parent, above, owners)
        if _is_replaceable_by_others(above):
            raise _shared_folder_error(path.parent, above)
    path.mkdir(mode & ~_OF_OTHERS, exist_ok=True)
    for status in (path.lstat(), path.stat()):  # a link of another user can lead elsewhere later
        _check_owner(path, status, owners)
    if status.st_mode & _OF_OTHERS:
        raise _shared_folder_error(path, status)


def _is_replaceable_by_others(status: os.stat_result) -> bool:
    """Return whether other users can replace files in a folder."""
    return bool(status.st_mode & _OF_OTHERS) and not status.st_mode & stat.S_ISVTX


def _check_owner(path: Path, status: os.stat_result, owners: Collection[int]) -> None:
    if status.st_uid not in {os.geteuid(), 0, *owners}:
        why = f"expected a folder of user {os.geteuid()}, found one of user {status.st_uid}"
        raise SharedFolderError(f"{path}: {_NOT_USED}: {why}")


def _shared_folder_error(path: Path, status: os.stat_result) -> SharedFolderError:
    found = f"one with mode {stat.S_IMODE(status.st_mode):04o}"
    why = f"expected a folder that no other user can write to, found {found}"
    return SharedFolderError(f"{path}: {_NOT_USED}: {why}")
