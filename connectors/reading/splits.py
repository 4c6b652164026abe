"""Units of work of a task: a byte range of one segment, listed records of it, or a missing segment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from commitlake.connectors.log_format.format import Format
from commitlake.connectors.numpy_arrays import Array
from commitlake.schemas.layouts.rocketmq.scan import SizeLimits


@dataclass(frozen=True)
class Split:
    """Range of a segment that one task reads, from the start of a record to the end of a record.

    Attributes:
        broker: the store's name.
        path: path or URI of the segment; for a missing one, its expected path.
        base_offset: physical offset of the segment's first byte.
        start: physical offset of the range's first byte.
        end: physical offset after the range.
        segment_end: physical offset after the segment.
        file_end: physical offset after the file's last byte.
        format: the format of the records.
        missing: whether the segment is missing, so that the whole range is a gap.
    """

    broker: str
    path: str
    base_offset: int
    start: int
    end: int
    segment_end: int
    file_end: int
    format: Format
    missing: bool = False

    @property
    def size(self) -> int:
        """Size of the range in bytes."""
        return self.end - self.start

    def record_size_limits(self, max_record_bytes: int) -> SizeLimits:
        """Return the limits for the sizes of records in this segment."""
        return SizeLimits(self.segment_end, self.file_end, max_record_bytes)


@dataclass(frozen=True)
class ListedSplit(Split):
    """Records of one segment that one task reads, at offsets that an index of the broker lists.

    The four lists have a packed number for each record, so that even a split of many records is small to send.

    Attributes:
        offsets: int64, physical offsets, ascending.
        sizes: int64, bytes of each record.
        queues: topics and queue ids; empty if the index does not have them.
        queue_numbers: int32, index in `queues` of each record's queue.
        queue_offsets: int64, queue offset of each record.
    """

    offsets: bytes = b""
    sizes: bytes = b""
    queues: tuple[tuple[str, int], ...] = ()
    queue_numbers: bytes = b""
    queue_offsets: bytes = b""

    @property
    def record_count(self) -> int:
        """Number of listed records."""
        return len(self.offsets) // 8

    @property
    def size(self) -> int:
        """Size of the listed records in bytes."""
        return int(self.field_array("sizes").sum())

    def field_array(self, name: str) -> Array:
        """Return a field that has a number for each record as a numpy array."""
        return np.frombuffer(getattr(self, name), np.int32 if name == "queue_numbers" else np.int64)


MAX_GAP_BYTES = 64 << 10
"""Distance of listed records up to which they are read together, including the bytes between them."""


def group_nearby_records(offsets: Array, sizes: Array) -> Array:
    """Divide records into groups that are read at once, because there are few bytes between them.

    Args:
        offsets: physical offsets of the records, ascending.
        sizes: sizes of the records, bytes.

    Returns:
        The index of the first record of each group, and the number of records.
    """
    if not len(offsets):
        return np.zeros(1, np.int64)
    breaks = np.flatnonzero(offsets[1:] - (offsets + sizes)[:-1] > MAX_GAP_BYTES) + 1
    return np.concatenate([[0], breaks, [len(offsets)]])
