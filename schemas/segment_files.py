"""Files of a folder that are named by the offset of their first byte."""

from __future__ import annotations

import errno
from pathlib import Path

from commitlake.schemas.layouts.segments import is_segment_name
from commitlake.schemas.store_files import UnsafeFileError, files_in


def files_by_start(folder: Path, *, below: Path | None = None) -> dict[int, str]:
    """Return the names of a folder's segments by the offset of their first byte, in the order of the offsets.

    Args:
        folder: the folder; none where it is not there.
        below: as for `files_in`.

    Raises:
        UnsafeFileError: for a link or no regular file, or for two names of one offset, in digits of two scripts.
    """
    found: dict[int, str] = {}
    for name in sorted(files_in(folder, is_segment_name, below=below), key=int):
        start = int(name)
        if start in found:
            raise UnsafeFileError.of(
                folder / name,
                f"one file that begins at {start}",
                f"another, {found[start]}, in digits of another script: move the one away that the broker does not "
                "write",
                errno.EEXIST,
            )
        found[start] = name
    return found
