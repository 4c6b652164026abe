"""Dialect of a store's CommitLog, for code that treats stores differently; records are read by their own magics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from commitlake.connectors.log_format.files import Segment, SegmentFile
from commitlake.connectors.log_format.format import Format
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.kernel import record_walk
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.connectors.reading.splits import Split
from commitlake.connectors.reading.stores import Store, segment_sizes
from commitlake.schemas.layouts.boltmq.dialect import DIALECT_BY_MAGIC, ROCKETMQ, Dialect
from commitlake.schemas.layouts.rocketmq.commitlog import BLANK, detect_segment_dialect
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES

_WINDOW_BYTES = 4 << 20


def detect_dialects(segments: Sequence[Segment], log_format: Format) -> frozenset[Dialect]:
    """Return the dialects (format variants) of a CommitLog; a log that a broker wrote has only one.

    Reads a few bytes of each segment. If all segments are damaged at their beginning, it reads up to the first intact
    records. The result is empty if there are none.
    """
    return frozenset(_detect_by_segment_starts(segments)) or _detect_by_first_records(segments, log_format)


def choose_dialect(segments: Sequence[Segment], log_format: Format) -> Dialect:
    """Return the dialect of a store: RocketMQ's if any segment has it or none shows its dialect; else another.

    Stops at the first segment of RocketMQ, because each segment of a store in an object store takes some requests.
    """
    found = set()
    for dialect in _detect_by_segment_starts(segments):
        if dialect is ROCKETMQ:
            return dialect
        found.add(dialect)
    found = found or set(_detect_by_first_records(segments, log_format))
    return ROCKETMQ if ROCKETMQ in found or not found else min(found, key=lambda dialect: dialect.name)


def _detect_by_first_records(segments: Sequence[Segment], log_format: Format) -> frozenset[Dialect]:
    """Return the most frequent dialect of the first intact records, as a set; empty if there are none."""
    for segment, size in zip(segments, segment_sizes(Store("", "", tuple(segments), log_format)), strict=True):
        base, file_end = segment.base_offset, segment.base_offset + segment.file_size
        split = Split("", segment.path, base, base, file_end, base + size, file_end, log_format)
        try:
            with OpenSegment(segment.path) as file:
                for step in walk_records(file, split, _WINDOW_BYTES, DEFAULT_MAX_RECORD_BYTES, WalkEnd()):
                    starts = step.parts[record_walk.START].tolist()
                    counts = Counter(DIALECT_BY_MAGIC[BLANK.unpack(step.window.data, start)[1]] for start in starts)
                    if counts:
                        return frozenset({counts.most_common(1)[0][0]})
        except FileNotFoundError:
            continue  # deleted since it was listed
    return frozenset()


def _detect_by_segment_starts(segments: Sequence[Segment]) -> Iterator[Dialect]:
    """Yield the dialect that each segment's first bytes show; skip segments that show none."""
    for segment in segments:
        try:
            with OpenSegment(segment.path) as file:
                dialect = _detect_file_dialect(file, segment.file_size)
        except FileNotFoundError:
            continue  # deleted since it was listed
        if dialect is not None:
            yield dialect


def _detect_file_dialect(file: SegmentFile, file_size: int) -> Dialect | None:
    def read_head_at(position: int) -> memoryview:
        window = np.empty(max(0, min(BLANK.size, file_size - position)), np.uint8)
        return window.data[: file.read_into(window, position)]

    return detect_segment_dialect(read_head_at)


def key_index_problem(segments: Sequence[Segment], log_format: Format) -> str | None:
    """Return why a store's IndexFiles cannot be used to search for keys; None if they can."""
    dialects = detect_dialects(segments, log_format)
    if not dialects:
        return "it has no intact records, so its dialect is not known"
    without = sorted(dialect.name for dialect in dialects if not dialect.has_key_index)
    return f"{without[0]} writes no chains of keys into its own" if without else None
