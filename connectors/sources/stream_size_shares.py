"""Division of a micro-batch's size limit among the stores, and the exact end of each store's share."""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.connectors.log_format.files import SegmentFile
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.segment_walk import WalkEnd, find_split_point, walk_records
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store
from commitlake.connectors.sources.stream_offsets import (
    StorePosition,
    full_size_of_segment,
    read_known_record,
    segment_at,
)

_WINDOW_BYTES = 4 << 20


def fair_shares(available_bytes: Mapping[str, int], max_bytes: int) -> dict[str, int]:
    """Return how many bytes to read from each store: all available, or an equal share of the limit, at least 1.

    >>> fair_shares({"a": 10, "b": 500, "c": 900}, 410)
    {'a': 10, 'b': 200, 'c': 200}

    Args:
        available_bytes: available bytes by store.
        max_bytes: maximum number of bytes in total.
    """
    shares: dict[str, int] = {}
    waiting = sorted(available_bytes, key=lambda name: available_bytes[name])
    for place, name in enumerate(waiting):
        shares[name] = min(available_bytes[name], max(1, max_bytes // (len(waiting) - place)))
        max_bytes = max(0, max_bytes - shares[name])
    return shares


def end_of_share(
    store: Store, start: StorePosition, end: StorePosition, share: int, max_record_bytes: int
) -> StorePosition:
    """Return where a micro-batch's part of a store ends: after the record that reaches `share` bytes, or at `end`.

    Args:
        store: current files of the store.
        start: start of the share.
        end: known end of the log.
        share: size in bytes; the record that contains the end, or the next one, is read as a whole.
        max_record_bytes: larger sizes are faults.
    """
    if start.offset + share >= end.offset:
        return end
    cut = _position_after(store, start, end.offset, start.offset + share - 1, max_record_bytes)
    return end if cut.offset >= end.offset else cut


def _position_after(
    store: Store, start: StorePosition, end: int, min_offset: int, max_record_bytes: int
) -> StorePosition:
    """Return the position after the first record at or after `min_offset`, or the end of the segment."""
    segment = segment_at(store, min_offset)
    if segment is None:  # in a gap, where nothing is read
        following = (one.base_offset for one in store.segments if one.base_offset > min_offset)
        return StorePosition(next(following, end), start.record)
    base, file_end = segment.base_offset, segment.base_offset + segment.file_size
    segment_end = base + full_size_of_segment(store, segment)
    begin = max(base, start.offset)
    reach = min(segment_end, end)
    whole = Split(store.broker, segment.path, base, begin, reach, segment_end, file_end, format=store.format)
    try:
        with OpenSegment(segment.path) as file:
            last = find_split_point(file, whole, min_offset, max_record_bytes)
            if last is None:
                last = _find_last_record(file, whole, max_record_bytes)
                record = None if last is None else read_known_record(store, last)
                return StorePosition(whole.end, record or start.record)
    except FileNotFoundError:
        return StorePosition(whole.end, start.record)
    record = read_known_record(store, last)
    return StorePosition(whole.end, start.record) if record is None else StorePosition(last + record.size, record)


def _find_last_record(file: SegmentFile, split: Split, max_record_bytes: int) -> int | None:
    last = None
    for step in walk_records(file, split, _WINDOW_BYTES, max_record_bytes, WalkEnd(), verifies_crc=False):
        if step.parts.shape[1]:
            last = step.origin + int(step.parts[record_walk.START, -1])
    return last
