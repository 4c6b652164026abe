"""File `checkpoint` of a store in JMQ's layout."""

from __future__ import annotations

from pathlib import Path

from commitlake.broker_lite.stores.engine.checkpoint_file import read_in_place, write_in_place
from commitlake.schemas.layouts.jmq.checkpoint import (
    FILE_NAME,
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)


class JournalCheckpointFile:
    """Checkpoint on disk.

    Attributes:
        value: content of the file when it was opened; None if it is missing or invalid.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        stored = read_in_place(self._path)
        self.value = None if stored is None else parse_journal_checkpoint(stored)

    def save(self, checkpoint: JournalCheckpoint) -> None:
        """Write the file and flush it to disk; it is a single page, so the disk has either the old or the new one."""
        write_in_place(self._path, serialize_journal_checkpoint(checkpoint))
