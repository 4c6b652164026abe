"""Reader of a range of the log as columns from which indexes are built, chunk by chunk."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from commitlake.connectors.log_format.indexes import IndexData
from commitlake.connectors.log_format.kernel import BadRange
from commitlake.connectors.reading.files.segment_files import OpenSegment
from commitlake.connectors.reading.kernel import record_walk as h
from commitlake.connectors.reading.kernel.buffers import Interner
from commitlake.connectors.reading.kernel.strings import DISTINCT
from commitlake.connectors.reading.segment_walk import WalkEnd, walk_records
from commitlake.connectors.reading.splits import Split
from commitlake.schemas.layouts.rocketmq.broker_conf import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault

CHUNK_ROWS = 1 << 18
"""Maximum number of records in a chunk; its columns take about 16 MiB."""
_WINDOW_BYTES = 4 << 20

SEED = np.uint64(secrets.randbits(64))  # random, because a producer who knew the hashes could make topics collide


def read_index_data(
    split: Split,
    *,
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[IndexData]:
    """Yield the data for indexes of the records in a range of the log, in chunks of consecutive records.

    If the file is missing, the whole range is one bad range, MISSING_SEGMENT. Zeros up to the range's end are a HOLE,
    because a snapshot's range ends after the last record.

    Args:
        split: a split from `snapshots.segment_ranges`, or a part of one.
        delay_levels_ms: the broker's messageDelayLevel.
        max_record_bytes: larger sizes are faults.
        chunk_rows: the largest number of records in a chunk.

    Raises:
        StoreError: if the file was truncated while it was read, or if it cannot be read.
    """
    if split.missing:
        yield _missing_segment_data(split)
        return
    reader = split.format.indexes.make_index_data_reader(split.start, delay_levels_ms, chunk_rows)
    end = WalkEnd()
    try:
        with OpenSegment(split.path) as file:
            for step in walk_records(
                file, split, _WINDOW_BYTES, max_record_bytes, end, locate_records=reader.locate_next_records
            ):
                # Before the walk goes on: the columns refer to the window, which the next step closes.
                reader.add_records(step.window, step.parts, step.origin, step.bad)
                if reader.is_full:
                    yield reader.finish_chunk()
    except FileNotFoundError:
        yield _missing_segment_data(split)
        return
    if end.stop == h.STOP_UNWRITTEN and end.position < split.end:
        reader.add_bad_range(BadRange(end.position, split.end, Fault.HOLE))
    yield reader.finish_chunk(split.end)


def _missing_segment_data(split: Split) -> IndexData:
    reader = split.format.indexes.make_index_data_reader(split.start, (0,), 1)
    reader.add_bad_range(BadRange(split.start, split.end, Fault.MISSING_SEGMENT))
    return reader.finish_chunk(split.end)


def topic_names(topic_interner: Interner) -> list[str]:
    """Return the topics in an interner (table of numbered texts), in the order of their numbers."""
    count = int(topic_interner.counts[DISTINCT])
    edges = topic_interner.starts[: count + 1].tolist()
    texts = topic_interner.texts[: edges[-1]].tobytes()
    return [texts[begin:stop].decode("utf-8", "replace") for begin, stop in pairwise(edges)]
