"""Search for the end of a store's log for each micro-batch, which reads only data after the known end.

The first search in a process is that of a batch, `take_snapshot`: from near the last record of the newest segment
to its last byte. From then on, a search continues where the last one ended, and stops after the first MiB of zeros
after the data. So data after a longer hole in the current segment is only read when the broker continues in the next
segment or the stream is restarted; a broker leaves no such holes.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.log_format.files import Segment, SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.options import Mode
from commitlake.connectors.reading.planning import refuse_incomplete_read
from commitlake.connectors.reading.snapshots import LogTailKind, StoreRange, find_segment_end, take_snapshot
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.sources.stream_offsets import (
    StorePosition,
    full_size_of_segment,
    read_known_record,
    segment_at,
)
from commitlake.schemas.layouts.rocketmq.scan import has_nonzero_bytes

SEARCH_BYTES = 4 << 20
"""Initial length of a search beyond the known end; it is doubled as needed."""
ZEROS_BYTES = 1 << 20


class LogEndSearcher:
    """Searcher for the end of a store's log, which continues at the end that the previous call found."""

    def __init__(self, max_record_bytes: int, mode: Mode = Mode.PERMISSIVE) -> None:
        self._max_record_bytes = max_record_bytes
        self._mode = mode
        self._found: StorePosition | None = None

    def find_end(self, store: Store, start: StorePosition, max_backlog_bytes: int | None = None) -> StorePosition:
        """Return the position after the last complete record, with that record; `start` if there is no new data.

        Args:
            store: current files of the store.
            start: position of the stream in it.
            max_backlog_bytes: size of a backlog for which a position before the end suffices, so the end is not
                searched.
        """
        newest = _newest_segment_with_data(store, start.offset)
        if (
            newest is not None
            and max_backlog_bytes is not None
            and newest.base_offset - start.offset > max_backlog_bytes
        ):
            return StorePosition(newest.base_offset, start.record)
        known = self._found
        if known is None or known.offset < start.offset or not _still_has_record(store, known):
            try:
                self._found = self._search_first_time(store, start)
            except FileNotFoundError:
                return start  # deleted since it was listed; the next search lists again
            return self._found
        if newest is not None and newest.base_offset > known.offset:
            known = StorePosition(newest.base_offset, known.record)
        self._found = self._continue_previous_search(store, known)
        return self._found

    def _search_first_time(self, store: Store, start: StorePosition) -> StorePosition:
        snapshot = take_snapshot([store], {store.broker: start.offset}, max_record_bytes=self._max_record_bytes)
        refuse_incomplete_read(snapshot.ranges[store.broker], self._mode)
        return _make_position(store, snapshot.ranges[store.broker], start)

    def _continue_previous_search(self, store: Store, known_position: StorePosition) -> StorePosition:
        segment = segment_at(store, known_position.offset)
        while segment is not None and _has_data(segment, known_position.offset, store.format.record_rules.head_bytes):
            found = self._find_end_in_segment(
                store.format, segment, known_position.offset, full_size_of_segment(store, segment)
            )
            before, known_position = known_position, _make_position(store, found, known_position)
            if found.tail is not LogTailKind.CLOSED or known_position.offset <= before.offset:
                break
            segment = segment_at(store, known_position.offset)
        return known_position

    def _find_end_in_segment(self, log_format: Format, segment: Segment, begin: int, size: int) -> StoreRange:
        """Find the end of a segment's data, reading no further than necessary."""
        file_end = segment.base_offset + segment.file_size
        found = StoreRange(begin, begin)
        ahead = SEARCH_BYTES
        try:
            with OpenSegment(segment.path) as file:
                while True:
                    reach = min(file_end, found.end + ahead)
                    step = find_segment_end(file, segment, found.end, size, self._max_record_bytes, log_format, reach)
                    if step is None:
                        return found
                    last_record = found.last_record if step.last_record is None else step.last_record
                    found = StoreRange(begin, step.end, step.tail, step.tail_bytes, last_record)
                    if (
                        step.tail is LogTailKind.CLOSED
                        or reach >= file_end
                        or _is_zeroed_before(file, segment, found, reach)
                    ):
                        return found
                    ahead *= 2
        except FileNotFoundError:
            return found


def _newest_segment_with_data(store: Store, offset: int) -> Segment | None:
    """Return the newest segment that begins after an offset and has data; None if there is none."""
    for segment in reversed(store.segments):
        if segment.base_offset <= offset:
            break
        if _has_data(segment, segment.base_offset, store.format.record_rules.head_bytes):
            return segment
    return None


def _has_data(segment: Segment, offset: int, head_bytes: int) -> bool:
    """Return whether data is written at an offset."""
    head = np.zeros(head_bytes, np.uint8)
    try:
        with OpenSegment(segment.path) as file:
            file.read_into(head, offset - segment.base_offset)
    except FileNotFoundError:
        return False
    return bool(head.any())


def _is_zeroed_before(file: SegmentFile, segment: Segment, store_range: StoreRange, offset: int) -> bool:
    """Return whether the MiB before an offset is all zeros; False if data was already found in it."""
    start = offset - ZEROS_BYTES
    if start < store_range.end:
        return False
    window = np.zeros(ZEROS_BYTES, np.uint8)
    length = file.read_into(window, start - segment.base_offset)
    return not has_nonzero_bytes(window.data[:length])


def _still_has_record(store: Store, known_position: StorePosition) -> bool:
    """Return whether the log still has the record found at its end before; a truncated log would have lost it."""
    record = known_position.record
    return (
        record is None or segment_at(store, record.offset) is None or read_known_record(store, record.offset) == record
    )


def _make_position(store: Store, store_range: StoreRange, previous_position: StorePosition) -> StorePosition:
    if store_range.end <= previous_position.offset:
        return previous_position
    record = None if store_range.last_record is None else read_known_record(store, store_range.last_record)
    return StorePosition(store_range.end, record or previous_position.record)
