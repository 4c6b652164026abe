"""The file `checkpoint` of a store: up to where log, queues and index were on the disk when it was last written.

Source: org.apache.rocketmq.store.StoreCheckpoint.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from broker_lite.store.errors import StoreFilesError
from schemas.layouts.checkpoint import Checkpoint, parse_checkpoint, serialize_checkpoint
from schemas.layouts.errors import LayoutError

FILE_NAME = "checkpoint"


class CheckpointFile:
    """The checkpoint in memory and on the disk.

    Attributes:
        value: what the file says, or will say after the next `save`.
    """

    def __init__(self, root: Path) -> None:
        """Read the file; a store without one starts with zeros.

        Raises:
            StoreFilesError: if it is too short to be one.
        """
        self._path = root / FILE_NAME
        self.value = Checkpoint()
        if self._path.exists():
            try:
                self.value = parse_checkpoint(self._path.read_bytes())
            except LayoutError as error:
                raise StoreFilesError(
                    f"{self._path}: {error}; without the file, recovery reads the whole log"
                ) from error

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
