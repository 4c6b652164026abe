"""The file `checkpoint` of a store: up to where log, queues and index were on the disk when it was last written.

Source: org.apache.rocketmq.store.StoreCheckpoint.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from schemas.layouts.checkpoint import FILE_SIZE, parse_checkpoint, serialize_checkpoint

FILE_NAME = "checkpoint"


class CheckpointFile:
    """The checkpoint in memory and on the disk.

    Attributes:
        value: what the file says, or will say after the next `save`.
    """

    def __init__(self, root: Path) -> None:
        """Read the file; what it lacks is zero, and zeros vouch for nothing: recovery then reads the whole log."""
        self._path = root / FILE_NAME
        stored = self._path.read_bytes() if self._path.exists() else b""
        self.value = parse_checkpoint(stored.ljust(FILE_SIZE, b"\0"))

    def update(self, **values: int) -> None:
        """Set some of the values, for the next `save`."""
        self.value = replace(self.value, **values)

    def save(self) -> None:
        """Write the file and put it on the disk; as a page of its own it is either the old or the new."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(descriptor, serialize_checkpoint(self.value), 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
