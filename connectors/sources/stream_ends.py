"""Where a store's log ends, found again for each micro-batch, at the cost of what is new.

The first look in a process is a batch's, `plan.take_snapshot`: through all of the newest segment, to its last byte.
From then on a look goes on where the last one ended, and no further than the first MiB of zeros behind the data. So
data behind a longer hole, in the segment that is being written, waits until the broker goes on to the next segment or
the stream is started again; a broker leaves no such holes.
"""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.engine.files import OpenSegment, SegmentFile
from commitlake.connectors.formats.engine.plan import StoreRange, TailKind, end_of_segment, take_snapshot
from commitlake.connectors.formats.engine.stores import Segment, Store
from commitlake.connectors.formats.format import Format
from commitlake.connectors.sources.stream_offsets import StorePosition, known_record, segment_at, size_of
from commitlake.schemas.layouts.rocketmq.scan import any_data

AHEAD_BYTES = 4 << 20
"""How far a look reaches beyond what is known; as often as it takes."""
ENOUGH_ZEROS = 1 << 20


class LogEnd:
    """The end of one store's log, as far as it has been found."""

    def __init__(self, max_record_bytes: int) -> None:
        self._max_record_bytes = max_record_bytes
        self._found: StorePosition | None = None

    def find(self, store: Store, start: StorePosition, enough: int | None = None) -> StorePosition:
        """The end behind the last whole record, and that record; `start` where nothing is new.

        Args:
            store: as it is now.
            start: how far the stream has come in it.
            enough: of a backlog of more bytes the end is not looked for: a place in it will do.
        """
        newest = _newest_begun(store, start.offset)
        if newest is not None and enough is not None and newest.base_offset - start.offset > enough:
            return StorePosition(newest.base_offset, start.record)
        known = self._found
        if known is None or known.offset < start.offset or not _still_holds(store, known):
            try:
                self._found = self._first_look(store, start)
            except FileNotFoundError:
                return start  # deleted since it was listed; the next look sees what there is
            return self._found
        if newest is not None and newest.base_offset > known.offset:
            known = StorePosition(newest.base_offset, known.record)
        self._found = self._look_on(store, known)
        return self._found

    def _first_look(self, store: Store, start: StorePosition) -> StorePosition:
        snapshot = take_snapshot([store], {store.broker: start.offset}, max_record_bytes=self._max_record_bytes)
        return _position(store, snapshot.ranges[store.broker], start)

    def _look_on(self, store: Store, known: StorePosition) -> StorePosition:
        segment = segment_at(store, known.offset)
        while segment is not None and _has_data(segment, known.offset, store.format.rules.head_bytes):
            found = self._end_of_new(store.format, segment, known.offset, size_of(store, segment))
            before, known = known, _position(store, found, known)
            if found.tail is not TailKind.CLOSED or known.offset <= before.offset:
                break
            segment = segment_at(store, known.offset)
        return known

    def _end_of_new(self, log_format: Format, segment: Segment, begin: int, size: int) -> StoreRange:
        """Where the data of a segment ends, looking no further than it takes to know."""
        file_end = segment.base_offset + segment.file_size
        found = StoreRange(begin, begin)
        ahead = AHEAD_BYTES
        try:
            with OpenSegment(segment.path) as file:
                while True:
                    reach = min(file_end, found.end + ahead)
                    step = end_of_segment(file, segment, found.end, size, self._max_record_bytes, log_format, reach)
                    if step is None:
                        return found
                    last_record = found.last_record if step.last_record is None else step.last_record
                    found = StoreRange(begin, step.end, step.tail, step.tail_bytes, last_record)
                    if step.tail is TailKind.CLOSED or reach >= file_end or _zeros_before(file, segment, found, reach):
                        return found
                    ahead *= 2
        except FileNotFoundError:
            return found


def _newest_begun(store: Store, offset: int) -> Segment | None:
    """The newest segment behind an offset that the broker has begun to write."""
    for segment in reversed(store.segments):
        if segment.base_offset <= offset:
            break
        if _has_data(segment, segment.base_offset, store.format.rules.head_bytes):
            return segment
    return None


def _has_data(segment: Segment, offset: int, head_bytes: int) -> bool:
    """Whether something is written at an offset."""
    head = np.zeros(head_bytes, np.uint8)
    try:
        with OpenSegment(segment.path) as file:
            file.read_into(head, offset - segment.base_offset)
    except FileNotFoundError:
        return False
    return bool(head.any())


def _zeros_before(file: SegmentFile, segment: Segment, found: StoreRange, reach: int) -> bool:
    """Whether the last MiB before a place, and behind the last record, is all zeros."""
    start = reach - ENOUGH_ZEROS
    if start < found.end:
        return False
    window = np.zeros(ENOUGH_ZEROS, np.uint8)
    length = file.read_into(window, start - segment.base_offset)
    return not any_data(window.data[:length])


def _still_holds(store: Store, known: StorePosition) -> bool:
    """Whether the log has not been cut to less than was seen of it."""
    record = known.record
    return record is None or segment_at(store, record.offset) is None or known_record(store, record.offset) == record


def _position(store: Store, found: StoreRange, before: StorePosition) -> StorePosition:
    if found.end <= before.offset:
        return before
    record = None if found.last_record is None else known_record(store, found.last_record)
    return StorePosition(found.end, record or before.record)
