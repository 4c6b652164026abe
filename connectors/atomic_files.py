"""Local files that exist completely or not at all, even if their writer is killed.

open_atomic   for a file in a folder that several processes may write to: each temporary name is unique
write_new     likewise, for a file that may not exist yet
write_synced  for a small file of a store or of an unfinished run, with one writing process: the temporary name is
              fixed, so the next run overwrites the file of a killed run, and a crash of the machine loses nothing
open_atomic_sized   for a log segment: as `write_synced`, but with a size that is known before the contents
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from commitlake.schemas.safe_store_files import create_file, make_folders, remove_tree, sync_folder


@contextmanager
def open_atomic(path: Path, *, buffering: int = -1) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; sync and rename it if the block ends without an error, else remove it.

    Args:
        path: the final path; an existing file is replaced.
        buffering: as for `open`.
    """
    # The process id alone is not unique if several machines share the folder.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(create_file(beside, may_replace=False), "wb", buffering=buffering) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise


def write_new(path: Path, data: bytes) -> bool:
    """Write a file unless one has its name, and return whether it was written; of several writers, only one does."""
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(create_file(beside, may_replace=False), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(beside)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()
    return True


@contextmanager
def open_atomic_sized(path: Path, size: int) -> Iterator[int]:
    """Open a temporary file of a fixed size, filled with zeros; sync and rename it if the block ends without an error.

    Args:
        path: the final path.
        size: size in bytes; a file system may allocate space for written bytes only.

    Yields:
        The file descriptor.
    """
    beside = path.with_suffix(".tmp")
    with os.fdopen(create_file(beside), "w+b") as file:
        os.truncate(file.fileno(), size)
        yield file.fileno()
        os.fsync(file.fileno())
    beside.replace(path)


def write_synced(path: Path, data: bytes, *, trusted_root: Path | None = None) -> None:
    """Write a small temporary file, sync it, rename it to its path, and sync its folder.

    Args:
        path: the final path; missing folders are created.
        data: contents of the file.
        trusted_root: a folder; no part of the path below it may be a link. By default the file's own folder.
    """
    make_folders(path.parent, trusted_root=trusted_root)
    beside = path.with_name(f"{path.name}.tmp")
    with os.fdopen(create_file(beside, trusted_root=trusted_root), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    move_synced(beside, path, trusted_root=trusted_root)


def move_synced(temporary_path: Path, path: Path, *, trusted_root: Path | None = None) -> None:
    """Rename a synced file to its final path, and sync the folder, so that the new name survives a crash."""
    make_folders(path.parent, trusted_root=trusted_root)
    temporary_path.replace(path)
    sync_folder(path.parent)


def remove_folder_in_order(folder: Path, last_file: str) -> None:
    """Delete the folder of a finished run, and its file `last_file` last, so that a rerun can resume the deletion."""
    for path in folder.iterdir():
        if path.name != last_file:
            remove_tree(path)
    (folder / last_file).unlink()
    folder.rmdir()
