"""The file `checkpoint` of a store in JMQ's layout."""

from __future__ import annotations

import os
from pathlib import Path

from broker_lite.store.checkpoint_file import read_in_place
from schemas.layouts.jmq_checkpoint import (
    FILE_NAME,
    JournalCheckpoint,
    parse_journal_checkpoint,
    serialize_journal_checkpoint,
)
from schemas.store_files import open_or_create


class JournalCheckpointFile:
    """The checkpoint on the disk.

    Attributes:
        value: what the file said when it was opened; None where there is none that can be believed.
    """

    def __init__(self, root: Path) -> None:
        self._path = root / FILE_NAME
        stored = read_in_place(self._path)
        self.value = None if stored is None else parse_journal_checkpoint(stored)

    def save(self, checkpoint: JournalCheckpoint) -> None:
        """Write the file and put it on the disk; as a page of its own it is either the old or the new."""
        descriptor = open_or_create(self._path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, serialize_journal_checkpoint(checkpoint), 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
