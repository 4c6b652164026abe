"""Segment files of a folder, which are named by the offset of their first byte."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from commitlake.schemas.layouts.segment_names import is_segment_name
from commitlake.schemas.safe_store_files import UnsafeFileError, files_in, open_file

_PROBE_BYTES = 64 << 10


def files_by_start(folder: Path, *, trusted_root: Path | None = None) -> dict[int, str]:
    """Return the segment files of a folder as a mapping from start offset to file name, sorted by offset.

    Args:
        folder: the folder; it need not exist.
        trusted_root: see `files_in`.

    Raises:
        UnsafeFileError: if a file is a symbolic link or not regular, or two names have the same offset.
    """
    return names_by_start(files_in(folder, is_segment_name, trusted_root=trusted_root), str(folder))


def names_by_start(names: Iterable[str], folder: str) -> dict[int, str]:
    """Return the given segment files as a mapping from start offset to file name, sorted by offset.

    Args:
        folder: path or URI of their folder, for the error.

    Raises:
        UnsafeFileError: if two names have the same offset.
    """
    found: dict[int, str] = {}
    for name in sorted(names, key=int):
        start = int(name)
        if start in found:
            raise UnsafeFileError.of(
                f"{folder}/{name}",
                f"one file that begins at {start}",
                f"another, {found[start]}: move away the one whose name has non-ASCII digits",
                errno.EEXIST,
            )
        found[start] = name
    return found


def written_end(path: Path) -> int:
    """Estimate the number of bytes written to a segment by bisection, because the rest of the file is zeros.

    A body of zeros may make the result too small.
    """
    descriptor = open_file(path)
    try:
        size = os.fstat(descriptor).st_size
        low, high = 0, -(-size // _PROBE_BYTES)
        while low < high:
            middle = (low + high) // 2
            if any(os.pread(descriptor, _PROBE_BYTES, middle * _PROBE_BYTES)):
                low = middle + 1
            else:
                high = middle
    finally:
        os.close(descriptor)
    return min(low * _PROBE_BYTES, size)
