"""Checkpoint file: one page that is overwritten in place, so that the disk has either the old or the new one."""

from __future__ import annotations

import os
from pathlib import Path

from commitlake.schemas.layouts.page import PAGE_SIZE
from commitlake.schemas.store_files import open_file, open_or_create


def read_in_place(path: Path) -> bytes | None:
    """Read a checkpoint that will be overwritten in place; return None if there is none.

    Raises:
        UnsafeFileError: if it is a symbolic link, not a regular file, or has several names.
    """
    try:
        descriptor = open_file(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        return os.pread(descriptor, PAGE_SIZE, 0)
    finally:
        os.close(descriptor)


def write_in_place(path: Path, data: bytes) -> None:
    """Overwrite or create a checkpoint, and flush it to disk."""
    descriptor = open_or_create(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
