"""Local files that are there whole or not at all, whatever kills their writer."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from commitlake.schemas.store_files import create_file


@contextmanager
def write_whole(path: Path, *, buffering: int = -1) -> Iterator[BinaryIO]:
    """A file under a name beside `path`, synced and renamed where the `with` ends without an error; else it is removed.

    Args:
        path: its name in the end; a file of that name is replaced.
        buffering: as for `open`.
    """
    # A process id alone would not do where several machines share the folder.
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


def sync_folder(folder: Path) -> None:
    """Put a folder's names on the disk: a new one is lost with the machine until that was done."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
