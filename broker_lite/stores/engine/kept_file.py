"""A small file of a store's that is written as a whole, and whose previous version stays beside it as `.bak`."""

from __future__ import annotations

import os
from pathlib import Path

from commitlake.schemas.store_files import create_file, make_folders, read_file, sync_folder


class KeptFile:
    """The file and its `.bak`; no link is followed on the way to them.

    Attributes:
        path: the file.
        backup: its previous version.
    """

    def __init__(self, root: Path, folder: str, name: str) -> None:
        self._root = root
        self.path = root / folder / name
        self.backup = self.path.with_name(f"{name}.bak")

    @property
    def exists(self) -> bool:
        """Whether there is a file, or something in its place."""
        return os.path.lexists(self.path)

    def read(self, path: Path) -> bytes | None:
        """Read a file of this folder; None where there is none.

        Raises:
            UnsafeFileError: if it is a link, no regular file, or too large.
        """
        try:
            return read_file(path, below=self._root)
        except FileNotFoundError:
            return None

    def write(self, data: bytes) -> None:
        """Write the file beside its place, put it on the disk, and rename it; what was there becomes the `.bak`."""
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
