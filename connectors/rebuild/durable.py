"""Files that are there as a whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from connectors.whole_files import sync_folder


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file beside its place, sync it, rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.tmp")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    move_synced(beside, path)


def remove_but_last(folder: Path, last: str) -> None:
    """Remove a folder whose run is done, the file that says there was one at the end: until then it can go on."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != last:
            path.unlink()
    (folder / last).unlink()
    folder.rmdir()


def move_synced(beside: Path, path: Path) -> None:
    """Give what is synced its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside.replace(path)
    sync_folder(path.parent)
