"""Position at which a stream starts in a store, as its options say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.options import ReadOptions, StreamStart
from commitlake.connectors.reading.segment_walk import WalkEnd, find_split_point, walk_records
from commitlake.connectors.reading.single_records import scan_at_offset
from commitlake.connectors.reading.snapshots import StoreRange, segment_ranges, take_snapshot
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.reading.time_bounds import store_times, time_bounds
from commitlake.connectors.sources.stream_offsets import (
    Positions,
    StorePosition,
    full_size_of_segment,
    read_known_record,
    segment_at,
)
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.scan import SpanKind

_WINDOW_BYTES = 4 << 20


def first_positions(stores: Sequence[Store], options: ReadOptions) -> Positions:
    """Return the position in each store at which a stream without a checkpoint starts.

    Raises:
        UsageError: if no record begins at a starting offset, or its broker does not exist.
    """
    start = options.start
    if isinstance(start, dict):
        known = {store.broker for store in stores}
        for broker in start:
            if broker not in known:
                found = ", ".join(sorted(known)) or "none"
                raise UsageError(
                    f"option startingOffset names the broker {broker!r}, but the path contains only {found}"
                )
    return {store.broker: _first_position(store, options) for store in stores}


def position_in_new_store(store: Store, options: ReadOptions) -> StorePosition:
    """Return the position at which a running stream starts in a store that has just appeared."""
    if options.starting_timestamp is not None:
        return _position_at_time(store, options.starting_timestamp, options)
    return _earliest_position(store, options)


def _first_position(store: Store, options: ReadOptions) -> StorePosition:
    offset = options.starting_offset
    if isinstance(options.start, dict):
        offset = options.start.get(store.broker)
    if offset is not None:
        return _position_at_offset(store, offset, options)
    if options.start is StreamStart.LATEST:
        return _end_position(store, _whole_range(store, options))
    return position_in_new_store(store, options)


def _whole_range(store: Store, options: ReadOptions) -> StoreRange:
    return take_snapshot([store], max_record_bytes=options.max_record_bytes).ranges[store.broker]


def _earliest_position(store: Store, options: ReadOptions) -> StorePosition:
    return _record_position(store, store.segments[0].base_offset, options)


def _end_position(store: Store, store_range: StoreRange) -> StorePosition:
    last = store_range.last_record
    return StorePosition(store_range.end, None if last is None else read_known_record(store, last))


def _record_position(store: Store, offset: int, options: ReadOptions) -> StorePosition:
    """Return the stream position at an offset, with the record there if it is valid.

    It includes the record there if that is valid, because other bytes may change.
    """
    is_record = _span_kind_at(store, offset, options) is SpanKind.RECORD
    return StorePosition(offset, read_known_record(store, offset) if is_record else None)


def _span_kind_at(store: Store, offset: int, options: ReadOptions) -> SpanKind | None:
    """Return what begins at an offset, such as a record or bad range; None if the offset is in no segment."""
    whole = _segment_range(store, offset)
    if whole is None:
        return None
    try:
        with OpenSegment(whole.path) as file:
            return scan_at_offset(file, whole, offset, options.max_record_bytes)[0].kind
    except FileNotFoundError:
        return None


def _segment_range(store: Store, offset: int) -> Split | None:
    segment = segment_at(store, offset)
    if segment is None:
        return None
    base, file_end = segment.base_offset, segment.base_offset + segment.file_size
    end = base + full_size_of_segment(store, segment)
    return Split(store.broker, segment.path, base, base, file_end, end, file_end, format=store.format)


def _position_at_offset(store: Store, offset: int, options: ReadOptions) -> StorePosition:
    """Return the stream position at the given offset, after checking that it is in the log and not inside a record."""
    log_end = store.segments[-1].base_offset + store.segments[-1].file_size
    if not 0 <= offset <= log_end:
        raise UsageError(
            f"option startingOffset: expected a physical offset of store {store.broker!r}, from 0 to {log_end}, where "
            f"its log ends, found {offset}"
        )
    if not is_record_boundary(store, offset, options):
        raise UsageError(
            f"option startingOffset: expected the physical offset at which a record of store {store.broker!r} begins, "
            f"found {offset}, which is inside a record"
        )
    return _record_position(store, offset, options)


def is_record_boundary(store: Store, offset: int, options: ReadOptions) -> bool:
    """Return whether a record or bad range begins or ends at an offset; True if the segment does not exist."""
    whole = _segment_range(store, offset)
    if whole is None or offset == whole.base_offset:
        return True
    end = WalkEnd()
    with OpenSegment(whole.path) as file:
        # A valid record may be part of a body; only one proven by its surroundings belongs to the log.
        if find_split_point(file, whole, offset, options.max_record_bytes) == offset:
            return True
        for step in walk_records(file, whole, _WINDOW_BYTES, options.max_record_bytes, end, verifies_crc=False):
            starts = step.origin + step.parts[record_walk.START]
            ends = step.origin + step.parts[record_walk.PROPERTIES] + step.parts[record_walk.PROPERTIES_LENGTH]
            if offset in starts or offset in ends or any(offset in (bad.start, bad.end) for bad in step.bad):
                return True
            if len(starts) and starts[-1] > offset:
                return False
    return end.position == offset


def _position_at_time(store: Store, time_ms: int, options: ReadOptions) -> StorePosition:
    """Return the position of the first record stored at or after a time, in ms; skip segments without such records."""
    store_range = _whole_range(store, options)
    wholes = [whole for whole in segment_ranges(store, store_range) if whole.size]
    found = time_bounds(
        wholes,
        store_range.last_record,
        options.clock_tolerance_ms,
        options.max_record_bytes,
        (time_ms, None),
    )
    for whole, bounds in zip(wholes, found, strict=True):
        if not whole.missing and bounds.may_overlap(time_ms, None):
            offset = _first_record_since(whole, time_ms, options)
            if offset is not None:
                return StorePosition(offset, read_known_record(store, offset))
    return _end_position(store, store_range)


def _first_record_since(split: Split, time_ms: int, options: ReadOptions) -> int | None:
    try:
        with OpenSegment(split.path) as file:
            for step in walk_records(
                file, split, _WINDOW_BYTES, options.max_record_bytes, WalkEnd(), verifies_crc=False
            ):
                since = np.flatnonzero(store_times(step, split.format) >= time_ms)
                if len(since):
                    return step.origin + int(step.parts[record_walk.START, since[0]])
    except FileNotFoundError:
        pass  # deleted since it was listed; the search continues in the next segment
    return None
