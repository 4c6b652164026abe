"""The file `checkpoint` of a store: up to where log, queues and index were on the disk when it was last written.

Source: org.apache.rocketmq.store.StoreCheckpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.stores.engine.checkpoint_file import read_in_place, write_in_place
from commitlake.schemas.layouts.rocketmq.checkpoint import FILE_SIZE, parse_checkpoint, serialize_checkpoint

FILE_NAME = "checkpoint"


class CheckpointFile:
    """The checkpoint in memory and on the disk.

    Attributes:
        value: what the file says, or will say after the next `save`.
    """

    def __init__(self, root: Path) -> None:
        """Read the file; what it lacks is zero, and zeros vouch for nothing: recovery then reads the whole log."""
        self._path = root / FILE_NAME
        stored = read_in_place(self._path) or b""
        self.value = parse_checkpoint(stored.ljust(FILE_SIZE, b"\0"))

    def update(self, **values: int) -> None:
        """Set some of the values, for the next `save`."""
        self.value = replace(self.value, **values)

    def save(self) -> None:
        """Write the file and put it on the disk; as a page of its own it is either the old or the new."""
        write_in_place(self._path, serialize_checkpoint(self.value))
