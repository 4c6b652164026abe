"""Records of a store's log, one by one, by the offsets that other files have."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from connectors.commitlog.files import OpenSegment
from connectors.commitlog.look import message_at
from connectors.commitlog.splits import Split
from connectors.commitlog.stores import Segment
from schemas.layouts.commitlog import Message
from schemas.layouts.scan import DEFAULT_MAX_RECORD_BYTES


class LogRecords:
    """The records of some segments."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Nothing is opened yet.

        Args:
            segments: in order of their offsets.
        """
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def at(self, offset: int) -> Message | None:
        """The record at a physical offset; None where none proves itself, or no segment is."""
        place = bisect_right(self._bases, offset) - 1
        if place < 0:
            return None
        segment = self._segments[place]
        base, end = segment.base_offset, segment.base_offset + segment.file_size
        if offset >= end:
            return None
        # The segment's end matters to fillers only.
        split = Split("", segment.path, base, base, end, end, end)
        try:
            with OpenSegment(segment.path) as file:
                found: Message | None = message_at(file, split, offset, DEFAULT_MAX_RECORD_BYTES)
                return found
        except FileNotFoundError:
            return None  # deleted by its age meanwhile
