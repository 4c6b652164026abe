"""Where the tables and packs of a lake lie, and whether a folder is one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TABLE_MARK = "_delta_log"


class LakeError(Exception):
    """A folder that is not, or cannot become, a lake; the message is for a user."""


@dataclass(frozen=True, slots=True)
class LakePaths:
    """A lake's tables and packs, by the folder or URI that holds them."""

    root: str

    @property
    def messages(self) -> str:
        """One row per message."""
        return self._table("messages")

    @property
    def bodies(self) -> str:
        """Packs of bodies."""
        return self._table("bodies")

    @property
    def quarantine(self) -> str:
        """What could not be read."""
        return self._table("quarantine")

    @property
    def gaps(self) -> str:
        """What was not there to be read."""
        return self._table("gaps")

    @property
    def message_keys(self) -> str:
        """Where the messages of a business key are."""
        return self._table("message_keys")

    @property
    def profiles(self) -> str:
        """Counts and checksums of what was archived, by topic, queue and window."""
        return self._table("profiles")

    @property
    def quality_results(self) -> str:
        """What the suites said of each run."""
        return self._table("quality_results")

    @property
    def archive_runs(self) -> str:
        """One row per finished run."""
        return self._table("archive_runs")

    def _table(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def check_writable(self) -> None:
        """Refuse a folder that holds something else, before anything is written beside it.

        Raises:
            LakeError: if the folder holds files but no lake, or may not be written.
        """
        if "://" in self.root:
            return
        root = Path(self.root)
        if not root.exists():
            parent = next(folder for folder in root.absolute().parents if folder.exists())
            if not os.access(parent, os.W_OK | os.X_OK):
                raise LakeError(f"{root} cannot be made: {parent} may not be written")
            return
        if not root.is_dir():
            raise LakeError(f"{root} is a file: expected the folder of a lake, or one to be made")
        if not os.access(root, os.W_OK | os.X_OK):
            raise LakeError(f"{root} may not be written")
        if not (Path(self.messages) / _TABLE_MARK).is_dir() and any(root.iterdir()):
            raise LakeError(
                f"{root} is not a lake: it holds other files and no table 'messages'. Name an empty or a new folder"
            )
