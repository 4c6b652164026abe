"""What a task reads: a byte range of one segment, or the place where a segment should be."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from schemas.layouts.scan import Bounds


@dataclass(frozen=True)
class Split(InputPartition):
    """One partition of a read. Its first byte is where a record begins, and so is the byte behind its last.

    Attributes:
        broker: the store's name.
        path: path or URI of the segment; of a missing one, where it should be.
        base_offset: physical offset of the segment's first byte.
        start: physical offset of the range's first byte.
        end: physical offset behind the range.
        segment_end: physical offset behind the segment.
        file_end: physical offset behind the bytes that the file has.
        missing: there is no such segment: all of the range is a gap.
    """

    broker: str
    path: str
    base_offset: int
    start: int
    end: int
    segment_end: int
    file_end: int
    missing: bool = False

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.end - self.start

    def bounds(self, max_record_bytes: int) -> Bounds:
        """What sizes in this segment are compared with."""
        return Bounds(self.segment_end, self.file_end, max_record_bytes)
