"""Files that are there as a whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path

from commitlake.connectors.whole_files import sync_folder
from commitlake.schemas.store_files import create_file, make_folders, remove_tree


def write_whole(path: Path, data: bytes, *, below: Path | None = None) -> None:
    """Write a small file beside its place, sync it, rename it.

    Args:
        path: its place.
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


def remove_but_last(folder: Path, last: str) -> None:
    """Remove a folder whose run is done, the file that says there was one at the end: until then it can go on."""
    for path in folder.iterdir():
        if path.name != last:
            remove_tree(path)
    (folder / last).unlink()
    folder.rmdir()


def move_synced(beside: Path, path: Path, *, below: Path | None = None) -> None:
    """Give what is synced its name; see `write_whole`."""
    make_folders(path.parent, below=below)
    beside.replace(path)
    sync_folder(path.parent)
