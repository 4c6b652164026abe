"""Small file that is written as a whole, with its previous version as `.bak`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from commitlake.schemas.store_files import create_file, make_folders, read_file, sync_folder


class FileWithBackup:
    """File with its `.bak`; no symbolic link on the way to them is followed.

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
        """True if the file exists, or something else has its name."""
        return os.path.lexists(self.path)

    def read(self, path: Path) -> bytes | None:
        """Read a file of this folder; return None if it does not exist.

        Raises:
            UnsafeFileError: if it is a symbolic link, not a regular file, or too large.
        """
        try:
            return read_file(path, below=self._root)
        except FileNotFoundError:
            return None

    def renew(self, seconds: float) -> None:
        """Set the file's time to now if it is older than so many seconds."""
        with suppress(FileNotFoundError):
            if time.time() - self.path.lstat().st_mtime > seconds:
                os.utime(self.path, follow_symlinks=False)

    def write(self, data: bytes) -> None:
        """Write a temporary file, flush it to disk and rename it; the previous file becomes the `.bak`."""
        make_folders(self.path.parent, below=self._root)
        beside = self.path.with_name(f"{self.path.name}.tmp")
        descriptor = create_file(beside, below=self._root)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        if self.exists:
            self.path.replace(self.backup)
        beside.replace(self.path)
        sync_folder(self.path.parent)
