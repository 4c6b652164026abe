"""File `checkpoint` of a store: the times up to which log, queues and index were on disk when it was last written.

Source: org.apache.rocketmq.store.StoreCheckpoint.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from commitlake.broker_lite.stores.engine.checkpoint_file import read_in_place, write_in_place
from commitlake.schemas.layouts.rocketmq.checkpoint import FILE_SIZE, parse_checkpoint, serialize_checkpoint

FILE_NAME = "checkpoint"


class CheckpointFile:
    """Checkpoint in memory and on disk.

    Attributes:
        value: content of the file after the next `save`.
    """

    def __init__(self, root: Path) -> None:
        """Read the file; missing values are 0, which makes recovery read the whole log."""
        self._path = root / FILE_NAME
        stored = read_in_place(self._path) or b""
        self.value = parse_checkpoint(stored.ljust(FILE_SIZE, b"\0"))

    def update(self, **values: int) -> None:
        """Set the given values for the next `save`."""
        self.value = replace(self.value, **values)

    def save(self) -> None:
        """Write the file and flush it to disk; it is a single page, so the disk has either the old or the new one."""
        write_in_place(self._path, serialize_checkpoint(self.value))
