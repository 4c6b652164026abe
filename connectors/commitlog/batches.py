"""From a split to Arrow batches: what a task does.

A batch holds the records of one window, less those that the filters drop, in the columns that were asked for. What is
not intact goes by the
mode: an error, a row with `_corrupt_record`, or a count in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from connectors.commitlog.arrow import Array
from connectors.commitlog.bodies import decompress
from connectors.commitlog.decoder import PROPERTY_COLUMNS, DecodedWindow
from connectors.commitlog.errors import BodyError, DamagedLogError
from connectors.commitlog.files import OpenSegment, SegmentFile, Window
from connectors.commitlog.filters import Filters
from connectors.commitlog.kernel import hop
from connectors.commitlog.options import BodyForm, Mode
from connectors.commitlog.splits import Split
from connectors.commitlog.walk import BadRange, End, walk
from schemas.layouts.scan import DEFAULT_MAX_RECORD_BYTES, Fault, SpanKind, examine

logger = logging.getLogger(__name__)

CORRUPT_RECORD = "_corrupt_record"
FIRST_BYTES = 256
_MAX_TIMESTAMP_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z: what Python, Spark and SQL all can hold
_TIMESTAMPS = ("born_timestamp", "store_timestamp")


@dataclass(frozen=True)
class Request:
    """What a read is to give.

    Attributes:
        schema: the columns, in order, as Spark's Arrow types.
        mode: what to do with what is not intact.
        filters: which records are wanted.
        body: what the column `body` holds, if it is asked for.
        max_body_bytes: limit of a decompressed body.
        max_batch_bytes: log bytes in a window.
        max_record_bytes: larger sizes are faults.
    """

    schema: pa.Schema
    mode: Mode = Mode.FAILFAST
    filters: Filters = field(default_factory=Filters)
    body: BodyForm = BodyForm.STORED
    max_body_bytes: int = 64 << 20
    max_batch_bytes: int = 4 << 20
    max_record_bytes: int = DEFAULT_MAX_RECORD_BYTES


class _Refused:
    """What a read did not give as it should: counted, described, and raised where the mode says so."""

    def __init__(self, split: Split, request: Request) -> None:
        self._split = split
        self._request = request
        self.counts: dict[Fault, int] = {}

    def take(self, start: int, end: int, fault: Fault, expected: str, found: str, first: bytes) -> dict[str, object]:
        """The value of `_corrupt_record` for a range.

        Raises:
            DamagedLogError: in mode FAILFAST.
        """
        if self._request.mode is Mode.FAILFAST:
            raise DamagedLogError(
                f"{self._split.path}, byte {start - self._split.base_offset} (physical offset {start}, to {end}): "
                f"{fault}: expected {expected}, found {found}. "
                "Mode PERMISSIVE gives such ranges as rows, DROPMALFORMED counts them in the log"
            )
        self.counts[fault] = self.counts.get(fault, 0) + 1
        return {
            "segment": self._split.path,
            "start": start,
            "end": end,
            "reason": str(fault),
            "expected": expected,
            "found": found,
            "first_bytes": first,
        }

    def log(self) -> None:
        """One line for what was dropped."""
        if self.counts and self._request.mode is Mode.DROPMALFORMED:
            counts = ", ".join(f"{count} {fault}" for fault, count in sorted(self.counts.items()))
            logger.warning(
                "%s, from %d to %d: dropped %s", self._split.path, self._split.start, self._split.end, counts
            )


def read_split(split: Split, request: Request) -> Iterator[pa.RecordBatch]:
    """The rows of one split.

    Raises:
        DamagedLogError: in mode FAILFAST, for a range that holds no intact record.
    """
    refused = _Refused(split, request)
    if split.missing:
        yield from _gap(split, request, refused, "no such file")
    else:
        try:
            with OpenSegment(split.path) as file:
                yield from _read_file(file, split, request, refused)
        except FileNotFoundError:
            yield from _gap(split, request, refused, "deleted since it was listed")
    refused.log()


def _gap(split: Split, request: Request, refused: _Refused, found: str) -> Iterator[pa.RecordBatch]:
    value = refused.take(split.start, split.end, Fault.MISSING_SEGMENT, f"the segment {split.path}", found, b"")
    yield from _bad_rows([value], split, request)


def _read_file(file: SegmentFile, split: Split, request: Request, refused: _Refused) -> Iterator[pa.RecordBatch]:
    end = End()
    for step in walk(file, split, request.max_batch_bytes, request.max_record_bytes, end):
        if step.parts.shape[1]:
            yield from _good_rows(step.window, step.parts, split, request, refused)
        if step.bad:
            yield from _bad_rows([_describe(file, split, bad, request, refused) for bad in step.bad], split, request)
    if end.stop == hop.STOP_UNWRITTEN and end.position < split.end:
        hole = BadRange(end.position, split.end, Fault.HOLE)
        yield from _bad_rows([_describe(file, split, hole, request, refused)], split, request)


def _describe(file: SegmentFile, split: Split, bad: BadRange, request: Request, refused: _Refused) -> dict[str, object]:
    """The words for a bad range, from another look at its first bytes."""
    bounds = split.bounds(request.max_record_bytes)
    finding = None
    for size in (4096, request.max_record_bytes):
        window = np.empty(max(0, min(size, split.file_end - bad.start)), np.uint8)
        view = window.data[: file.read_into(window, bad.start - split.base_offset)]
        finding = examine(view, 0, bad.start, bounds)
        if finding.kind is not SpanKind.MORE:
            break
    first = bytes(view[: min(FIRST_BYTES, bad.end - bad.start)])
    if bad.fault is Fault.HOLE:
        expected, found = "a record or a BLANK", f"{bad.end - bad.start} bytes without one, zeros first"
    elif finding is not None and finding.fault is bad.fault:
        expected, found = finding.expected, finding.found
    else:
        expected, found = f"{bad.end - bad.start} bytes", f"the file cut to {len(view)} bytes behind this offset"
    return refused.take(bad.start, bad.end, bad.fault, expected, found, first)


def _bad_rows(values: list[dict[str, object]], split: Split, request: Request) -> Iterator[pa.RecordBatch]:
    filters = request.filters
    if request.mode is not Mode.PERMISSIVE or filters.by_content:
        return
    rows = len(values)
    starts = pa.array([value["start"] for value in values], pa.int64())
    columns = []
    for field in request.schema:
        if field.name == CORRUPT_RECORD:
            columns.append(pa.array(values, field.type))
        elif field.name == "broker":
            columns.append(pa.array([split.broker] * rows, field.type))
        elif field.name == "physical_offset":
            columns.append(starts)
        else:
            columns.append(pa.nulls(rows, field.type))
    yield pa.RecordBatch.from_arrays(columns, schema=request.schema)


def _good_rows(
    window: Window, parts: Array, split: Split, request: Request, refused: _Refused
) -> Iterator[pa.RecordBatch]:
    decoded = DecodedWindow(window, parts, split.broker, keep_entries="properties" in request.schema.names)
    wanted = _wanted_rows(decoded, request.filters)
    if wanted is not None:
        if not wanted.any():
            return
        decoded = decoded.select(wanted)
    batch = _Batch(decoded, split, request, refused).build()
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


class _Batch:
    """One batch in the making: columns, and rows with a value that no column can hold."""

    def __init__(self, decoded: DecodedWindow, split: Split, request: Request, refused: _Refused) -> None:
        self._decoded = decoded
        self._split = split
        self._request = request
        self._refused = refused
        self._names = set(request.schema.names)
        self._notes: dict[int, dict[str, object]] = {}

    def build(self) -> pa.RecordBatch | None:
        """The batch, or None where the mode dropped all of it."""
        if self._names & PROPERTY_COLUMNS:
            self._mend_properties()
        if self._names & {"topic", "kind"}:
            self._note_topics()
        columns = [self._column(field) for field in self._request.schema]
        if self._notes and CORRUPT_RECORD in self._names:
            place = self._request.schema.get_field_index(CORRUPT_RECORD)
            columns[place] = pa.array([self._notes.get(row) for row in range(self._decoded.rows)], columns[place].type)
        batch = pa.RecordBatch.from_arrays(columns, schema=self._request.schema)
        if not self._notes or self._request.mode is Mode.PERMISSIVE:
            return batch
        kept = np.ones(self._decoded.rows, bool)
        kept[list(self._notes)] = False
        return batch.filter(pa.array(kept)) if kept.any() else None

    def _column(self, field: pa.Field) -> pa.Array:
        if field.name == CORRUPT_RECORD:
            return pa.nulls(self._decoded.rows, field.type)
        if field.name in _TIMESTAMPS:
            return self._timestamps(field)
        if field.name == "body" and self._request.body is BodyForm.DECOMPRESSED:
            return self._decompressed(field)
        column = self._decoded.column(field.name)
        return column if column.type == field.type else column.cast(field.type)

    def _note(self, row: int, fault: Fault, expected: str, found: str, raw: bytes = b"") -> None:
        if row in self._notes:
            return
        start = int(self._decoded.physical_offset_of(row))
        end = start + self._decoded.size_of(row)
        self._notes[row] = self._refused.take(start, end, fault, expected, found, raw[:FIRST_BYTES])

    def _timestamps(self, field: pa.Field) -> pa.Array:
        milliseconds = (
            self._decoded.store_timestamps() if field.name == "store_timestamp" else self._decoded.int64(field.name)
        )
        outside = (milliseconds < 0) | (milliseconds > _MAX_TIMESTAMP_MS)
        if not outside.any():
            return self._decoded.column(field.name)
        for row in np.flatnonzero(outside):
            expected = f"{field.name} of 0 to {_MAX_TIMESTAMP_MS} ms"
            self._note(int(row), Fault.TIMESTAMP, expected, str(milliseconds[row]))
        return pa.array(np.where(outside, 0, milliseconds) * 1000, pa.int64(), mask=outside).cast(field.type)

    def _note_topics(self) -> None:
        for code, value in enumerate(self._decoded.topics.values):
            try:
                value.decode()
            except UnicodeDecodeError as error:
                for row in np.flatnonzero(self._decoded.topics.codes == code):
                    self._note(int(row), Fault.TOPIC_ENCODING, "a topic in UTF-8", str(error), value)

    def _mend_properties(self) -> None:
        """Put U+FFFD where properties are not UTF-8, as RocketMQ's own decoder does, and say so."""
        rows = self._decoded.rows_not_utf8()
        replaced = {}
        for row in rows:
            raw = self._decoded.raw_properties(int(row))
            replaced[int(row)] = raw.decode("utf-8", "replace").encode()
            self._note(int(row), Fault.PROPERTIES_ENCODING, "properties in UTF-8", _first_not_utf8(raw), raw)
        if replaced:
            self._decoded = self._decoded.with_properties(replaced)

    def _decompressed(self, field: pa.Field) -> pa.Array:
        bodies = self._decoded.bodies()
        flags = self._decoded.sys_flags
        compressed = np.flatnonzero(flags & 1)
        if not len(compressed):
            return bodies
        values: list[bytes | None] = bodies.to_pylist()
        for row in compressed:
            body = values[row]
            assert body is not None
            try:
                values[row] = decompress(body, int(flags[row]), self._request.max_body_bytes)
            except BodyError as error:
                values[row] = None
                self._note(
                    int(row), Fault.BODY_COMPRESSION, "a body that decompresses within its limit", str(error), body
                )
        return pa.array(values, field.type)


def _first_not_utf8(raw: bytes) -> str:
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"byte {raw[error.start]:#04x} at {error.start} of {len(raw)}: {error.reason}"
    return "UTF-8"
