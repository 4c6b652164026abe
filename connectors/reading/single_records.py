"""Single records of a log: at one position of a segment, or by the offsets in other files."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from commitlake.connectors.log_format.files import Segment, SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, ScanFinding, SpanKind

_FIRST_READ_BYTES = 4096


def scan_at_offset(
    file: SegmentFile, split: Split, offset: int, max_record_bytes: int
) -> tuple[ScanFinding, memoryview]:
    """Return what begins at a physical offset (record, bad range or other), and the bytes from there on.

    Args:
        file: the open segment.
        split: any range of it.
        offset: the physical offset.
        max_record_bytes: larger sizes are faults.
    """
    bounds, rules = split.record_size_limits(max_record_bytes), split.format.record_rules
    view = _read_bytes_at(file, split, offset, _FIRST_READ_BYTES)
    finding = rules.examine(view, 0, offset, bounds)
    # Most records fit in the first read. A larger one states its size in its head, so one more read is enough.
    if finding.kind is SpanKind.MORE and len(view) >= rules.head_bytes:
        view = _read_bytes_at(file, split, offset, rules.size_of(view))
        finding = rules.examine(view, 0, offset, bounds)
    return finding, view


def message_at(file: SegmentFile, split: Split, offset: int, max_record_bytes: int) -> Any:
    """Return the record at a physical offset, as a message of its format; None if there is no valid one."""
    finding, view = scan_at_offset(file, split, offset, max_record_bytes)
    if finding.kind is not SpanKind.RECORD:
        return None
    found = split.format.record_rules.parse(view)
    return None if found is None else found[0]


def _read_bytes_at(file: SegmentFile, split: Split, offset: int, size: int) -> memoryview:
    window = np.empty(max(0, min(size, split.file_end - offset)), np.uint8)
    return window.data[: file.read_into(window, offset - split.base_offset)]


_MAX_REMOTE_SEGMENTS = 4


class LogRecords:
    """Access to records of several segments by physical offset, for several threads.

    The segments in an object store or HDFS that were read last stay open, because opening one takes several requests.
    """

    def __init__(self, segments: Sequence[Segment], log_format: Format) -> None:
        """Store the list of segments; no segment is opened yet.

        Args:
            segments: segments in order of their offsets.
        """
        self._format = log_format
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._remote: OrderedDict[str, SegmentFile] = OrderedDict()
        self._lock = threading.Lock()

    def get_record(self, physical_offset: int) -> Any:
        """Return the record at a physical offset, as a message of its format; None if there is no valid one."""
        place = bisect_right(self._bases, physical_offset) - 1
        if place < 0:
            return None
        segment = self._segments[place]
        base, end = segment.base_offset, segment.base_offset + segment.file_size
        if physical_offset >= end:
            return None
        # Only fillers depend on the segment's end.
        split = Split("", segment.path, base, base, end, end, end, format=self._format)
        try:
            if is_uri(segment.path):
                return message_at(self._open_remote(segment.path), split, physical_offset, DEFAULT_MAX_RECORD_BYTES)
            with OpenSegment(segment.path) as file:
                return message_at(file, split, physical_offset, DEFAULT_MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None  # deleted meanwhile

    def _open_remote(self, path: str) -> SegmentFile:
        with self._lock:
            if (found := self._remote.get(path)) is None:
                found = self._remote[path] = OpenSegment(path).file
                if len(self._remote) > _MAX_REMOTE_SEGMENTS:
                    self._remote.popitem(last=False)  # not closed here: another thread may read it, and drops it then
            self._remote.move_to_end(path)
            return found
