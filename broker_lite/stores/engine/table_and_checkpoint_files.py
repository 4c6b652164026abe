"""Small files of a store: tables saved as a whole, and checkpoints overwritten in place.

A table is written to a temporary file, flushed and renamed, and its previous version stays as `.bak`. A checkpoint is a
single page, so that the disk has either the old or the new one, and needs no second file.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from commitlake.broker_lite.errors import StoreError
from commitlake.schemas.layouts.base import PAGE_SIZE
from commitlake.schemas.safe_store_files import (
    create_file,
    make_folders,
    open_file,
    open_or_create_file,
    read_file,
    sync_folder,
)

_logger = logging.getLogger(__name__)
T = TypeVar("T")
DATED_SECONDS = 5
"""Age at which the time of an unchanged file is renewed."""


class SavedTable(ABC):
    """Table that is saved to a file with a backup; several threads may use it.

    Attributes:
        path: path of the file.
        backup: path of its previous version.
        is_changed: True if the table has changed since it was saved.
        is_dated: True if readers use the file's modification time as the time of its content, as with offsets. RocketMQ
            writes such files again every five seconds.
    """

    is_dated = False

    def __init__(self, root: Path, folder: str, name: str) -> None:
        """Set the path of the file, without reading it.

        Args:
            root: folder of the store.
            folder: folder of the file within it.
            name: name of the file.
        """
        self._file = FileWithBackup(root, folder, name)
        self.path, self.backup = self._file.path, self._file.backup
        self._guard = threading.RLock()
        self._saving = threading.Lock()  # taken before the guard; the guard is never held while a file is written
        self.is_changed = False

    def _read_table(self, parse: Callable[[bytes], T], *others: Path) -> T | None:
        """Read the file; if it is missing or invalid, try its `.bak`, and then other files of its folder.

        Args:
            parse: converts the file's bytes to a table; raises ValueError.
            others: files that other programs write instead.

        Returns:
            The table; None if no file exists.
        """
        problems = []
        for path in (self.path, self.backup, *others):
            data = self._file.read(path)
            if data is None:
                continue
            try:
                table = parse(data)
            except ValueError as error:
                problems.append(f"{path}: {error}")
                continue
            if problems:
                _logger.warning("%s; using %s instead", problems[0], path.name)
            return table
        if problems:
            raise StoreError("; ".join(problems))
        return None

    @abstractmethod
    def _serialize(self) -> bytes:
        """Return the table as the bytes of its file."""

    def save(self) -> None:
        """Write the file, and keep its previous version as `.bak`; concurrent calls take turns."""
        with self._saving:
            self._write_table()

    @contextmanager
    def saved(self) -> Iterator[None]:
        """Write the file if the table has changed, and leave it and its modification time as they are meanwhile."""
        with self._saving:
            if self.is_changed:
                self._write_table()
            yield

    def save_if_changed(self) -> None:
        """Write the file if the table has changed; otherwise, for some files, only update the modification time."""
        with self._saving:
            if self.is_changed:
                self._write_table()
            elif self.is_dated:
                self._file.touch_if_older(DATED_SECONDS)

    def _write_table(self) -> None:
        with self._guard:
            data = self._serialize()
            # Before the file is written: a change during the write sets it again, for the next save.
            self.is_changed = False
        try:
            self._file.write(data)
        except OSError:
            self.is_changed = True
            raise


class FileWithBackup:
    """File with a backup, its `.bak`; symbolic links are not followed.

    Attributes:
        path: path of the file.
        backup: path of its previous version.
    """

    def __init__(self, root: Path, folder: str, name: str) -> None:
        self._root = root
        self.path = root / folder / name
        self.backup = self.path.with_name(f"{name}.bak")

    @property
    def exists(self) -> bool:
        """True if the path exists, even if it is not a regular file."""
        return os.path.lexists(self.path)

    def read(self, path: Path) -> bytes | None:
        """Return the content of a file in this folder; None if it does not exist.

        Raises:
            UnsafeFileError: if it is a symbolic link, not a regular file, or too large.
        """
        try:
            return read_file(path, trusted_root=self._root)
        except FileNotFoundError:
            return None

    def touch_if_older(self, seconds: float) -> None:
        """Set the file's modification time to now if it is more than `seconds` old."""
        with suppress(FileNotFoundError):
            if time.time() - self.path.lstat().st_mtime > seconds:
                os.utime(self.path, follow_symlinks=False)

    def write(self, data: bytes) -> None:
        """Replace the file atomically and durably, and keep its previous version as `.bak`."""
        make_folders(self.path.parent, trusted_root=self._root)
        beside = self.path.with_name(f"{self.path.name}.tmp")
        descriptor = create_file(beside, trusted_root=self._root)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        # If the process is killed between the two renames, there is only the backup, which is read then.
        if self.exists:
            self.path.replace(self.backup)
        beside.replace(self.path)
        sync_folder(self.path.parent)


def read_checkpoint_file_bytes(path: Path) -> bytes | None:
    """Return the content of a checkpoint; None if the file does not exist.

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
    """Overwrite a checkpoint in place, or create it, and flush it to disk."""
    descriptor = open_or_create_file(path, os.O_WRONLY)
    try:
        os.pwrite(descriptor, data, 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
