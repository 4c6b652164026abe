"""The file `checkpoint` of a store in JMQ's layout."""

from __future__ import annotations

import os
from pathlib import Path

from schemas.layouts.jmq_checkpoint import (
    FILE_NAME,
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)


class JournalCheckpointFile:
    """The checkpoint on the disk.

    Attributes:
        value: what the file said when it was opened; None where there is none that can be believed.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        self.value = parse_journal_checkpoint(self._path.read_bytes()) if self._path.exists() else None

    def save(self, checkpoint: JournalCheckpoint) -> None:
        """Write the file and put it on the disk; as a page of its own it is either the old or the new."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, serialize_journal_checkpoint(checkpoint), 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
