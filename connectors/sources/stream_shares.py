"""How much of each store a micro-batch takes, and where exactly it ends."""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.connectors.formats.engine.cuts import find_cut
from commitlake.connectors.formats.engine.files import OpenSegment, SegmentFile
from commitlake.connectors.formats.engine.kernel import hop
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.stores import Store
from commitlake.connectors.formats.engine.walk import End, walk
from commitlake.connectors.sources.stream_offsets import StorePosition, known_record, segment_at, size_of

_WINDOW_BYTES = 4 << 20


def fair_shares(available: Mapping[str, int], limit: int) -> dict[str, int]:
    """Bytes for each store: all that it has, or as much as any other that has more; at least one byte.

    >>> fair_shares({"a": 10, "b": 500, "c": 900}, 410)
    {'a': 10, 'b': 200, 'c': 200}

    Args:
        available: bytes that each store has.
        limit: bytes for all of them.
    """
    shares: dict[str, int] = {}
    waiting = sorted(available, key=lambda name: available[name])
    for place, name in enumerate(waiting):
        shares[name] = min(available[name], max(1, limit // (len(waiting) - place)))
        limit = max(0, limit - shares[name])
    return shares


def cut_at(store: Store, start: StorePosition, end: StorePosition, share: int, max_record_bytes: int) -> StorePosition:
    """Where a share of what lies between two positions ends: behind the first record that reaches it, or at the end.

    Args:
        store: as it is now.
        start: where the share begins.
        end: as far as the log is known.
        share: bytes; the record in which they end, or the next one, is taken whole.
        max_record_bytes: larger sizes are faults.
    """
    if start.offset + share >= end.offset:
        return end
    cut = _cut(store, start, end.offset, start.offset + share - 1, max_record_bytes)
    return end if cut.offset >= end.offset else cut


def _cut(store: Store, start: StorePosition, end: int, at: int, max_record_bytes: int) -> StorePosition:
    """Behind the first record from `at` on, or where the segment ends."""
    segment = segment_at(store, at)
    if segment is None:  # in a gap, which costs nothing
        following = (one.base_offset for one in store.segments if one.base_offset > at)
        return StorePosition(next(following, end), start.record)
    base, file_end = segment.base_offset, segment.base_offset + segment.file_size
    segment_end = base + size_of(store, segment)
    begin = max(base, start.offset)
    reach = min(segment_end, end)
    whole = Split(store.broker, segment.path, base, begin, reach, segment_end, file_end, format=store.format)
    try:
        with OpenSegment(segment.path) as file:
            last = find_cut(file, whole, at, max_record_bytes)
            if last is None:
                last = _last_record(file, whole, max_record_bytes)
                record = None if last is None else known_record(store, last)
                return StorePosition(whole.end, record or start.record)
    except FileNotFoundError:
        return StorePosition(whole.end, start.record)
    record = known_record(store, last)
    return StorePosition(whole.end, start.record) if record is None else StorePosition(last + record.size, record)


def _last_record(file: SegmentFile, whole: Split, max_record_bytes: int) -> int | None:
    last = None
    for step in walk(file, whole, _WINDOW_BYTES, max_record_bytes, End(), verify=False):
        if step.parts.shape[1]:
            last = step.origin + int(step.parts[hop.START, -1])
    return last
