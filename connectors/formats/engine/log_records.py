"""Single records of a store's log, by the offsets in other files."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from commitlake.connectors.formats.engine.files import OpenSegment, SegmentFile
from commitlake.connectors.formats.engine.single_records import message_at
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.stores import Segment
from commitlake.connectors.formats.format import Format
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

_MAX_REMOTE_SEGMENTS = 4


class LogRecords:
    """Records of a list of segments, which several threads can read.

    The segments in an object store or HDFS that were read last stay open, because opening one takes several requests.
    """

    def __init__(self, segments: Sequence[Segment], log_format: Format) -> None:
        """Set the segments; none is opened yet.

        Args:
            segments: segments in order of their offsets.
        """
        self._format = log_format
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._remote: OrderedDict[str, SegmentFile] = OrderedDict()
        self._lock = threading.Lock()

    def at(self, offset: int) -> Any:
        """Return the record at a physical offset, as a message of its format; None if there is no valid one."""
        place = bisect_right(self._bases, offset) - 1
        if place < 0:
            return None
        segment = self._segments[place]
        base, end = segment.base_offset, segment.base_offset + segment.file_size
        if offset >= end:
            return None
        # Only fillers depend on the segment's end.
        split = Split("", segment.path, base, base, end, end, end, format=self._format)
        try:
            if is_uri(segment.path):
                return message_at(self._open_remote(segment.path), split, offset, DEFAULT_MAX_RECORD_BYTES)
            with OpenSegment(segment.path) as file:
                return message_at(file, split, offset, DEFAULT_MAX_RECORD_BYTES)
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
