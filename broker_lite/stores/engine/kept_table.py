"""A table in memory that is kept in one small file, and saved as a whole when it has changed."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from commitlake.broker_lite.stores.engine.errors import ConfigFileError
from commitlake.broker_lite.stores.engine.kept_file import KeptFile

_logger = logging.getLogger(__name__)
T = TypeVar("T")


class KeptTable(ABC):
    """The table; several threads may use it.

    Attributes:
        path: its file.
        backup: the file's previous version.
        is_changed: whether the table has changed since it was saved.
    """

    def __init__(self, root: Path, folder: str, name: str) -> None:
        """Take the file's place; nothing is read yet.

        Args:
            root: the store's folder.
            folder: the file's folder in it.
            name: the file's name.
        """
        self._file = KeptFile(root, folder, name)
        self.path, self.backup = self._file.path, self._file.backup
        self._guard = threading.RLock()
        self.is_changed = False

    def _read(self, parse: Callable[[bytes], T], *others: Path) -> T | None:
        """Read the file; where it is missing or broken, its `.bak`, and then other files of its folder.

        Args:
            parse: makes the table of a file's bytes; raises ValueError.
            others: files that others write in its place.

        Returns:
            The table; None where there is no file.

        Raises:
            ConfigFileError: if there are files, and none can be read.
            UnsafeFileError: if one of them is a link or no file.
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
                _logger.warning("%s; %s is used", problems[0], path.name)
            return table
        if problems:
            raise ConfigFileError("; ".join(problems))
        return None

    @abstractmethod
    def _serialize(self) -> bytes:
        """Return the file's bytes."""

    def save(self) -> None:
        """Write the file; what was there becomes the `.bak`."""
        with self._guard:
            data = self._serialize()
            self.is_changed = False
        try:
            self._file.write(data)
        except OSError:
            self.is_changed = True
            raise

    def save_changed(self) -> None:
        """Write the file if the table has changed."""
        if self.is_changed:
            self.save()
