"""From a split to Arrow batches: what a task does.

A batch holds the records of one window, less those that the filters drop, in the columns that were asked for. What is
not intact goes by the mode: an error, a row with `_corrupt_record`, or a count in the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from connectors.commitlog.arrow import Array
from connectors.commitlog.decoder import DecodedWindow
from connectors.commitlog.files import OpenSegment, SegmentFile, Window
from connectors.commitlog.filters import Filters
from connectors.commitlog.kernel import hop
from connectors.commitlog.options import Mode
from connectors.commitlog.refused import Refused, bad_rows, describe
from connectors.commitlog.request import Request
from connectors.commitlog.rows import RowBatch
from connectors.commitlog.splits import Split
from connectors.commitlog.walk import BadRange, End, walk
from schemas.layouts.scan import Fault


def read_split(split: Split, request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of one split.

    Raises:
        DamagedLogError: in mode FAILFAST, for a range that holds no intact record.
    """
    refused = Refused(split, request)
    if split.missing:
        yield from _gap(split, request, refused, "no such file")
    else:
        try:
            with OpenSegment(split.path) as file:
                yield from _read_file(file, split, request, refused)
        except FileNotFoundError:
            yield from _gap(split, request, refused, "deleted since it was listed")
    refused.log()


def _gap(split: Split, request: Request, refused: Refused, found: str) -> Iterator[pa.RecordBatch]:
    value = refused.take(split.start, split.end, Fault.MISSING_SEGMENT, f"the segment {split.path}", found, b"")
    yield from bad_rows([value], split, request)


def _read_file(file: SegmentFile, split: Split, request: Request, refused: Refused) -> Iterator[pa.RecordBatch]:
    end = End()
    for step in walk(file, split, request.max_batch_bytes, request.max_record_bytes, end):
        parts = step.parts
        if step.bad and request.mode is Mode.FAILFAST:  # what is wrong with later records is not the first fault
            parts = parts[:, parts[hop.START] < step.bad[0].start - step.origin]
        if parts.shape[1]:
            yield from _good_rows(step.window, parts, split, request, refused)
        if step.bad:
            yield from bad_rows([describe(file, split, bad, request, refused) for bad in step.bad], split, request)
    if end.stop == hop.STOP_UNWRITTEN and end.position < split.end:
        hole = BadRange(end.position, split.end, Fault.HOLE)
        yield from bad_rows([describe(file, split, hole, request, refused)], split, request)


def _good_rows(
    window: Window, parts: Array, split: Split, request: Request, refused: Refused
) -> Iterator[pa.RecordBatch]:
    decoded = DecodedWindow(window, parts, split.broker, keep_entries="properties" in request.schema.names)
    wanted = _wanted_rows(decoded, request.filters)
    if wanted is not None:
        if not wanted.any():
            return
        decoded = decoded.select(wanted)
    batch = RowBatch(decoded, request, refused).build()
    if batch is not None:
        yield batch


def _wanted_rows(decoded: DecodedWindow, filters: Filters) -> Array | None:
    """Which records pass the filters, or None for all."""
    masks: list[Array] = []
    if filters.topics is not None:
        chosen = np.array([name in filters.topics for name in decoded.topic_names], bool)
        masks.append(chosen[decoded.topics.codes])
    if filters.queue_ids is not None:
        masks.append(np.isin(decoded.int32("queue_id"), list(filters.queue_ids)))
    if filters.min_offset is not None:
        masks.append(decoded.int64("physical_offset") >= filters.min_offset)
    if filters.end_offset is not None:
        masks.append(decoded.int64("physical_offset") < filters.end_offset)
    if filters.min_store_timestamp is not None:
        masks.append(decoded.store_timestamps() >= filters.min_store_timestamp)
    if filters.end_store_timestamp is not None:
        masks.append(decoded.store_timestamps() < filters.end_store_timestamp)
    return np.logical_and.reduce(masks) if masks else None
