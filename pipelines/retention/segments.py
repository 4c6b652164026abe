"""Segments of a store: size, last write, and the archived part of each."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import pyarrow.fs as pafs

from commitlake.connectors.log_format.files import Segment
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.files.shipped_stores import resolve_filesystem
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.storage.uris import is_uri
from commitlake.schemas.layouts.segment_names import segment_name
from commitlake.schemas.times import from_seconds

_BLOCK_BYTES = 512  # unit of st_blocks
_PROBE_BYTES = 64 << 10
_GROWTH_WINDOW = datetime.timedelta(days=1)
_SHORTEST_GROWTH = datetime.timedelta(minutes=1)


class ArchivedShare(StrEnum):
    """Share of a segment's present content that the lake has: all, a part, or nothing."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of a store's log as it is on disk.

    Attributes:
        base_offset: physical offset of its first byte.
        size: size in bytes of the file.
        allocated: disk space in bytes; files are sparse until they are written.
        modified: time of its last write.
        begun: True if it has content; a broker creates the next files in advance.
        archived: share that is in the lake.
        written: number of bytes from its start that may have content; all, if it is not the newest.
    """

    base_offset: int
    size: int
    allocated: int
    modified: datetime.datetime
    begun: bool
    archived: ArchivedShare = ArchivedShare.NO
    written: int | None = None

    @property
    def name(self) -> str:
        """File name of the segment."""
        return segment_name(self.base_offset)

    @property
    def unwritten_bytes(self) -> int:
        """Number of bytes of the segment that are not written yet."""
        return self.size - (self.size if self.written is None else self.written)


def read_segments(store: Store, archived_end: int) -> list[StoredSegment]:
    """Return the segments of a store as they are now, without those deleted since they were listed.

    Args:
        store: from `find_stores`.
        archived_end: physical offset up to which the lake has the store, 0 if it has nothing.

    Raises:
        StoreError: if a segment is not readable.
    """
    segments = []
    for segment in store.segments:
        try:
            size, allocated, modified = _read_segment_status(segment)
            head = _read_segment_head(store.format, segment, 0)
            archived = _find_archived_share(store.format, segment, archived_end)
        except FileNotFoundError:
            continue
        begun = any(head)
        segments.append(StoredSegment(segment.base_offset, size, allocated, modified, begun, archived))
    if segments:
        last = newest_segment_index(segments)
        with suppress(FileNotFoundError):
            segments[last] = replace(
                segments[last], written=_find_written_size(_find_segment_at(store, segments[last].base_offset))
            )
    return segments


def _find_segment_at(store: Store, base_offset: int) -> Segment:
    return next(segment for segment in store.segments if segment.base_offset == base_offset)


def _read_segment_status(segment: Segment) -> tuple[int, int, datetime.datetime]:
    if not is_uri(segment.path):
        status = Path(segment.path).lstat()
        return status.st_size, status.st_blocks * _BLOCK_BYTES, from_seconds(status.st_mtime)
    filesystem, path = resolve_filesystem(segment.path)
    (info,) = filesystem.get_file_info([path])
    if info.type == pafs.FileType.NotFound:
        raise FileNotFoundError(path)
    return info.size, info.size, from_seconds(info.mtime_ns / 1e9)


def _find_archived_share(log_format: Format, segment: Segment, archived_end: int) -> ArchivedShare:
    if archived_end <= segment.base_offset:
        return ArchivedShare.NO
    if archived_end >= segment.base_offset + segment.file_size:
        return ArchivedShare.YES
    # After its last message, a segment has zeros while it is being written, and a filler when it is closed.
    head = _read_segment_head(log_format, segment, archived_end - segment.base_offset)
    rules = log_format.record_rules
    is_filler = len(head) == rules.head_bytes and rules.is_filler(memoryview(head))
    return ArchivedShare.YES if is_filler or not any(head) else ArchivedShare.PARTLY


def _read_segment_head(log_format: Format, segment: Segment, position: int) -> bytes:
    window = np.zeros(log_format.record_rules.head_bytes, np.uint8)
    with OpenSegment(segment.path) as file:
        return window[: file.read_into(window, position)].tobytes()


def _find_written_size(segment: Segment) -> int:
    """Estimate how much of a segment is written, by bisection for the zeros after its newest record.

    A body of zeros may make the result too small. Only the estimated time at which the file is full depends on it.
    """
    window = np.empty(_PROBE_BYTES, np.uint8)
    low, high = 0, -(-segment.file_size // _PROBE_BYTES)
    with OpenSegment(segment.path) as file:
        while low < high:
            middle = (low + high) // 2
            if window[: file.read_into(window, middle * _PROBE_BYTES)].any():
                low = middle + 1
            else:
                high = middle
    return min(low * _PROBE_BYTES, segment.file_size)


def newest_segment_index(segments: Sequence[StoredSegment]) -> int:
    """Return the index of the segment that is being written: the last one with content, or the first."""
    return max((number for number, segment in enumerate(segments) if segment.begun), default=0)


def measure_log_growth(segments: Sequence[StoredSegment], now: datetime.datetime) -> float:
    """Return the growth of a log during the last day, in bytes per second; 0 if it is not known.

    It is counted from the end of a segment, which is the time at which its file was last written.

    Args:
        segments: from `read_segments`.
        now: current time.
    """
    last = newest_segment_index(segments)
    closed = [number for number in range(last) if segments[number].modified <= now - _SHORTEST_GROWTH]
    if not closed:
        return 0.0
    older = [number for number in closed if segments[number].modified <= now - _GROWTH_WINDOW]
    base = older[-1] if older else closed[0]
    written = (
        sum(segment.allocated for segment in segments[base + 1 : last])
        + segments[last].size
        - segments[last].unwritten_bytes
    )
    return written / (now - segments[base].modified).total_seconds()
