"""File `checkpoint`: a broker's flush progress, as six timestamps and offsets in a file of 4,096 bytes.

Brokers of 4.9 write the first three, those before 5.5 the first five. Source:
org.apache.rocketmq.store.StoreCheckpoint.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from commitlake.schemas.layouts.base import PAGE_SIZE, Field, Layout, pad_to_page, parse_file_head

FILE_SIZE = PAGE_SIZE
RECOVERY_MARGIN_MS = 3000
"""Recovery only trusts data that is older than the smaller timestamp minus this margin."""

LAYOUT = Layout(
    Field("physic_msg_timestamp", "q", "store time of the last message in the flushed CommitLog, ms"),
    Field("logics_msg_timestamp", "q", "store time of the last message in a flushed ConsumeQueue, ms"),
    Field("index_msg_timestamp", "q", "store time of the last entry of the last full and flushed IndexFile, ms"),
    Field("master_flushed_offset", "q", "bytes; 5.x"),
    Field("confirm_physical_offset", "q", "bytes; 5.x"),
    Field("logics_physical_offset", "q", "physical offset of the last message in a flushed ConsumeQueue, bytes; 5.5"),
)
assert LAYOUT.size == 48


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Values of the checkpoint file; all are 0 in a new store."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0
    logics_physical_offset: int = 0

    @property
    def min_timestamp(self) -> int:
        """Store time in ms up to which the log and the queues are both known to be on disk."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - RECOVERY_MARGIN_MS)


def parse_checkpoint(data: bytes) -> Checkpoint:
    """Parse the checkpoint in a file's bytes.

    Raises:
        LayoutError: if the file is shorter than its fields.
    """
    return Checkpoint(*parse_file_head(LAYOUT, "checkpoint", data))


def serialize_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the content of the whole checkpoint file, 4,096 bytes."""
    return pad_to_page(LAYOUT.pack(*astuple(checkpoint)))
