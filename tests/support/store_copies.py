"""Copies of a store that tests damage, one file at a time."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.support.logs import damage


def copy_store(original: Path, root: Path) -> None:
    """Copy a store into a folder, and replace any earlier content."""
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(original, root)


def damage_file(path: Path, chance: random.Random, *, keep_size: bool) -> None:
    """Add one random fault to a file."""
    data = path.read_bytes()
    worse = damage(data, chance)
    path.write_bytes(worse.ljust(len(data), b"\0")[: len(data)] if keep_size else worse)


def clear_last_pages(log: Path, cut: int) -> None:
    """Clear the last pages of a log's files, as after a power failure; sizes stay unchanged.

    Args:
        log: the folder of its files, each named by its first offset.
        cut: offset at which the zeros begin.
    """
    for file in log.iterdir():
        data = file.read_bytes()
        file.write_bytes(data[: max(0, cut - int(file.name))].ljust(len(data), b"\0"))
