"""A range of the log as the columns from which indexes are made, chunk by chunk: of each format by its own reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from commitlake.connectors.arrays import Array
from commitlake.connectors.formats.engine.files import OpenSegment
from commitlake.connectors.formats.engine.kernel import hop as h
from commitlake.connectors.formats.engine.place import Place
from commitlake.connectors.formats.engine.splits import Split
from commitlake.connectors.formats.engine.walk import BadRange, End, walk
from commitlake.connectors.formats.facts.records import Facts
from commitlake.schemas.layouts.rocketmq.delay_levels import DEFAULT_DELAY_LEVELS_MS
from commitlake.schemas.layouts.rocketmq.scan import DEFAULT_MAX_RECORD_BYTES, Fault

CHUNK_ROWS = 1 << 18
"""Records of a chunk at most; its columns take about 16 MiB."""
_WINDOW_BYTES = 4 << 20


class FactsReader(Protocol):
    """Collects chunks of one range of a log."""

    def hop(self, place: Place, state: Array, faults: Array) -> Array:
        """See `walk.Hop`; what it finds counts once `commit` is told of it."""

    def commit(self, window: Array, parts: Array, origin: int, bad: Sequence[BadRange]) -> None:
        """Keep what the last `hop` found, while its window is there."""

    def add_bad(self, bad: BadRange) -> None:
        """Note a bad range that the walk does not tell."""

    @property
    def is_full(self) -> bool:
        """Whether the next record may find no room."""

    def finish(self, end: int | None = None) -> Facts:
        """The chunk so far; the next one begins where it ends."""


def read_facts(
    split: Split,
    *,
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES,
    chunk_rows: int = CHUNK_ROWS,
) -> Iterator[Facts]:
    """The records of a range in chunks; the chunks follow one another without a gap.

    A range without its file is one bad range, MISSING_SEGMENT. Zeros up to the range's end are a HOLE, as a snapshot's
    range ends behind the last record.

    Args:
        split: from `plan.segment_ranges`, or divided from one.
        delay_levels_ms: the broker's messageDelayLevel.
        max_record_bytes: larger sizes are faults.
        chunk_rows: records of a chunk at most.

    Raises:
        SegmentCutError: if the file was cut while it was read.
        StoreError: if it may not be read.
    """
    if split.missing:
        yield _missing(split)
        return
    reader = split.format.facts_reader(split.start, delay_levels_ms, chunk_rows)
    end = End()
    try:
        with OpenSegment(split.path) as file:
            for step in walk(file, split, _WINDOW_BYTES, max_record_bytes, end, hop=reader.hop):
                reader.commit(step.window, step.parts, step.origin, step.bad)
                if reader.is_full:
                    yield reader.finish()
    except FileNotFoundError:
        yield _missing(split)
        return
    if end.stop == h.STOP_UNWRITTEN and end.position < split.end:
        reader.add_bad(BadRange(end.position, split.end, Fault.HOLE))
    yield reader.finish(split.end)


def _missing(split: Split) -> Facts:
    reader = split.format.facts_reader(split.start, (0,), 1)
    reader.add_bad(BadRange(split.start, split.end, Fault.MISSING_SEGMENT))
    return reader.finish(split.end)
