"""Segment files of a folder, which are named by the offset of their first byte."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from commitlake.schemas.layouts.segments import is_segment_name
from commitlake.schemas.store_files import UnsafeFileError, files_in


def files_by_start(folder: Path, *, below: Path | None = None) -> dict[int, str]:
    """Return the names of a folder's segments by the offset of their first byte, in the order of the offsets.

    Args:
        folder: the folder; it need not exist.
        below: see `files_in`.

    Raises:
        UnsafeFileError: if a file is a symbolic link or not regular, or two names have the same offset.
    """
    return names_by_start(files_in(folder, is_segment_name, below=below), str(folder))


def names_by_start(names: Iterable[str], place: str) -> dict[int, str]:
    """Return the names of segments by the offset of their first byte, in the order of the offsets.

    Args:
        names: the names.
        place: path or URI of their folder, for the error.

    Raises:
        UnsafeFileError: if two names have the same offset.
    """
    found: dict[int, str] = {}
    for name in sorted(names, key=int):
        start = int(name)
        if start in found:
            raise UnsafeFileError.of(
                f"{place}/{name}",
                f"one file that begins at {start}",
                f"another, {found[start]}, in digits of another script: move away the one not written by the broker",
                errno.EEXIST,
            )
        found[start] = name
    return found
