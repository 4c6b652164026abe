"""Dialect of a store's CommitLog, for code that treats stores differently; records are read by their own magics."""

from __future__ import annotations

import numpy as np

from commitlake.connectors.formats.engine.files import OpenSegment, SegmentFile
from commitlake.connectors.formats.engine.stores import Store
from commitlake.schemas.layouts.boltmq.dialect import Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, dialect_of_segment


def dialects_of(store: Store) -> frozenset[Dialect]:
    """Return the dialects of a CommitLog's segments: a single one in every store that a broker has written.

    None of them where no segment begins with a record, as an empty one does, and one that is damaged there. Reads a few
    bytes of each segment.
    """
    found = set()
    for segment in store.segments:
        try:
            with OpenSegment(segment.path) as file:
                found.add(_dialect_of(file, segment.file_size))
        except FileNotFoundError:
            continue  # deleted since it was listed
    return frozenset(dialect for dialect in found if dialect is not None)


def _dialect_of(file: SegmentFile, file_size: int) -> Dialect | None:
    def read(position: int) -> memoryview:
        window = np.empty(max(0, min(BLANK.size, file_size - position)), np.uint8)
        return window.data[: file.read_into(window, position)]

    return dialect_of_segment(read)


def why_no_key_index(store: Store) -> str | None:
    """Return why the IndexFiles of a store cannot be searched for keys, for a plan; None if they can."""
    dialects = dialects_of(store)
    if not dialects:
        return "no segment begins with records, so its dialect is not known"
    without = sorted(dialect.name for dialect in dialects if not dialect.has_key_index)
    return f"{without[0]} writes no chains of keys into its own" if without else None
