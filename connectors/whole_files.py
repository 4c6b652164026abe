"""Local files that exist completely or not at all, even if their writer is killed.

write_whole   a file in a folder that several processes may write to: the name beside it is new each time
write_sized   a segment of a log: as `write_synced`, but of a size that is known before what is in it
write_synced  a small file of a store or of an unfinished run, which one process writes: the name beside it is fixed,
so that the next run writes over what a killed one left, and a crash of the machine loses nothing
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from commitlake.schemas.store_files import create_file, make_folders, remove_tree, sync_folder


@contextmanager
def write_whole(path: Path, *, buffering: int = -1) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; sync and rename it if the block ends without an error, else remove it.

    Args:
        path: its name in the end; a file of that name is replaced.
        buffering: as for `open`.
    """
    # The process id alone is not unique if several machines share the folder.
    beside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")
    try:
        with os.fdopen(create_file(beside, replace=False), "wb", buffering=buffering) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            beside.unlink()
        raise


@contextmanager
def write_sized(path: Path, size: int) -> Iterator[int]:
    """Open a temporary file of a fixed size, filled with zeros; sync and rename it if the block ends without an error.

    Args:
        path: its place.
        size: its bytes; a file system may keep room for those that are written only.

    Yields:
        Its descriptor.
    """
    beside = path.with_suffix(".tmp")
    with os.fdopen(create_file(beside), "w+b") as file:
        os.truncate(file.fileno(), size)
        yield file.fileno()
        os.fsync(file.fileno())
    beside.replace(path)


def write_synced(path: Path, data: bytes, *, below: Path | None = None) -> None:
    """Write a small temporary file, sync it, rename it to its path, and sync its folder.

    Args:
        path: its place; folders that are missing are made.
        data: all of it.
        below: from here on no part of the path may be a link; by default the file's own folder.
    """
    make_folders(path.parent, below=below)
    beside = path.with_name(f"{path.name}.tmp")
    with os.fdopen(create_file(beside, below=below), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    move_synced(beside, path, below=below)


def move_synced(beside: Path, path: Path, *, below: Path | None = None) -> None:
    """Rename a synced file to its path, and sync its folder; see `write_synced`."""
    make_folders(path.parent, below=below)
    beside.replace(path)
    sync_folder(path.parent)


def remove_but_last(folder: Path, last: str) -> None:
    """Remove the folder of a finished run; the file that identifies it goes last, so that a rerun can resume."""
    for path in folder.iterdir():
        if path.name != last:
            remove_tree(path)
    (folder / last).unlink()
    folder.rmdir()
