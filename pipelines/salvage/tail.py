"""Ranges after the end of a log, which a salvage leaves out and reports."""

from __future__ import annotations

from commitlake.connectors.formats.engine.files import OpenSegment
from commitlake.connectors.formats.engine.kernel import hop as h
from commitlake.connectors.formats.engine.plan import StoreRange, TailKind
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.stores import Store, segment_sizes
from commitlake.connectors.formats.engine.walk import End, walk
from commitlake.pipelines.salvage.segments import Damage
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

DROPPED = "dropped"
UNPROVEN = "unproven_end"
"""The fault of complete records whose last bytes may not have been written."""
_WINDOW_BYTES = 4 << 20


def dropped_tail(store: Store, found: StoreRange) -> tuple[list[Damage], int]:
    """Return the ranges after a log's end that are not empty, and the number of records with a right CRC in them.

    Args:
        store: from `find_stores`.
        found: the log's range, from `take_snapshot`.
    """
    if found.tail is not TailKind.TORN:
        return [], 0
    end = found.end + found.tail_bytes
    damages: list[Damage] = []
    records = 0
    for segment, size in zip(store.segments, segment_sizes(store), strict=True):
        base = segment.base_offset
        start, stop = max(found.end, base), min(end, base + segment.file_size)
        if start >= stop:
            continue
        file_end = base + segment.file_size
        split = Split(store.broker, segment.path, base, start, stop, base + size, file_end, store.format)
        with OpenSegment(segment.path) as file:
            for step in walk(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, End()):
                records += step.parts.shape[1]
                starts = (step.origin + step.parts[h.START]).tolist()
                ends = (step.origin + step.parts[h.PROPERTIES] + step.parts[h.PROPERTIES_LENGTH]).tolist()
                damages += [Damage(*edges, UNPROVEN, DROPPED) for edges in zip(starts, ends, strict=True)]
                damages += [Damage(bad.start, bad.end, bad.fault.value, DROPPED) for bad in step.bad]
    return sorted(damages, key=lambda damage: damage.start), records
