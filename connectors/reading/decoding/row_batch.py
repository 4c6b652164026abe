"""Rows of one batch while it is built, including rows with values that do not fit their columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from commitlake.connectors.reading.damage import CORRUPT_RECORD, FIRST_BYTES, BadRangeCounter
from commitlake.connectors.reading.decoding.arrow import compact_batch
from commitlake.connectors.reading.decoding.bodies import decompress_by_sys_flag
from commitlake.connectors.reading.decoding.columns import DecodedBatch
from commitlake.connectors.reading.errors import BodyError
from commitlake.connectors.reading.options import BodyForm, Mode
from commitlake.connectors.reading.read_request import Request
from commitlake.schemas.layouts.rocketmq.scan import Fault
from commitlake.schemas.layouts.rocketmq.sysflag import COMPRESSED

MAX_TIMESTAMP_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the limit of Python, Spark and SQL
BATCH_BYTES = 32 << 20
"""Size of decompressed bodies in one batch; a few KiB of log can become gigabytes."""
Notes = dict[int, dict[str, object]]
"""Faults of rows by number: values of `_corrupt_record`."""
_TIMESTAMPS = ("born_timestamp", "store_timestamp")


class RowBatch:
    """Converter of decoded records to Arrow batches, which marks rows with a value that no column can store."""

    def __init__(
        self, decoded: DecodedBatch, request: Request, refused: BadRangeCounter, notes: Notes | None = None
    ) -> None:
        self._decoded = decoded
        self._request = request
        self._refused = refused
        self._names = set(request.schema.names)
        self._notes: Notes = notes or {}

    def make_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the mode keeps, as one batch, or as several if decompressed bodies are large."""
        if self._names & {"topic", "kind"}:
            self._note_invalid_topics()
        columns = [None if self._is_decompressed(field) else self._make_column(field) for field in self._request.schema]
        place = next((place for place, column in enumerate(columns) if column is None), None)
        if place is None:
            yield from self._make_batch(columns, 0, self._decoded.row_count)
            return
        for first, bodies in self._decompress_bodies():
            part = [column.slice(first, len(bodies)) if column is not None else None for column in columns]
            part[place] = bodies.cast(self._request.schema.field(place).type)
            yield from self._make_batch(part, first, len(bodies))

    def _make_batch(self, columns: list[pa.Array], first_row: int, row_count: int) -> Iterator[pa.RecordBatch]:
        """Yield the given rows as a batch, without rows that the mode drops; yield nothing if no row is left."""
        notes = {
            row - first_row: value for row, value in self._notes.items() if first_row <= row < first_row + row_count
        }
        schema = self._request.schema
        if notes and CORRUPT_RECORD in self._names:
            place = schema.get_field_index(CORRUPT_RECORD)
            columns[place] = pa.array([notes.get(row) for row in range(row_count)], columns[place].type)
        if self._request.encoded:
            schema = pa.schema([field.with_type(column.type) for field, column in zip(schema, columns, strict=True)])
        batch = compact_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        if not notes or self._request.mode is Mode.PERMISSIVE:
            yield batch
            return
        kept = np.ones(row_count, bool)
        kept[list(notes)] = False
        if kept.any():
            yield batch.filter(pa.array(kept))

    def _is_decompressed(self, field: pa.Field) -> bool:
        """Return whether a column contains decompressed bodies, which are larger than the stored ones."""
        is_wanted = field.name == "body" and self._request.body is BodyForm.DECOMPRESSED
        return is_wanted and bool((self._decoded.sys_flags & COMPRESSED).any())

    def _make_column(self, field: pa.Field) -> pa.Array:
        if field.name == CORRUPT_RECORD or not self._decoded.has_column(field.name):
            return pa.nulls(self._decoded.row_count, field.type)
        if field.name in _TIMESTAMPS:
            return self._make_timestamp_column(field)
        column = self._decoded.column(field.name)
        return column if column.type == field.type or self._request.encoded else column.cast(field.type)

    def _note_fault(self, row: int, fault: Fault, expected: str, found: str, raw: bytes = b"") -> None:
        record_fault(self._notes, self._decoded, row, self._refused, fault, expected, found, raw)

    def _make_timestamp_column(self, field: pa.Field) -> pa.Array:
        milliseconds = self._decoded.int64_values(field.name)
        outside = milliseconds.view(np.uint64) > MAX_TIMESTAMP_MS  # negative times become large numbers
        if not outside.any():
            return self._decoded.column(field.name)
        for row in np.flatnonzero(outside):
            expected = f"{field.name} of 0 to {MAX_TIMESTAMP_MS} ms"
            self._note_fault(int(row), Fault.TIMESTAMP, expected, str(milliseconds[row]))
        return pa.array(np.where(outside, 0, milliseconds) * 1000, pa.int64(), mask=outside).cast(field.type)

    def _note_invalid_topics(self) -> None:
        for code in self._decoded.topics.invalid_value_numbers:
            value = self._decoded.topics.values[code]
            for row in np.flatnonzero(self._decoded.topic_codes == code):
                self._note_fault(
                    int(row), Fault.TOPIC_ENCODING, "a topic in UTF-8", describe_invalid_utf8(value), value
                )

    def _decompress_bodies(self) -> Iterator[tuple[int, pa.Array]]:
        """Decompress the bodies of the first rows, as many as `BATCH_BYTES` allow, but at least one."""
        stored, flags = self._decoded.body_column(), self._decoded.sys_flags
        values: list[bytes | None] = []
        first = size = 0
        for row in range(self._decoded.row_count):
            body = self._decompress_body(row, stored[row].as_py(), int(flags[row]))
            more = 0 if body is None else len(body)
            if values and size + more > BATCH_BYTES:
                yield first, pa.array(values, pa.binary())
                first, size, values = row, 0, []
            values.append(body)
            size += more
        yield first, pa.array(values, pa.binary())

    def _decompress_body(self, row: int, body: bytes, flags: int) -> bytes | None:
        if not flags & COMPRESSED:
            return body
        try:
            return decompress_by_sys_flag(body, flags, self._request.max_body_bytes)
        except BodyError as error:
            self._note_fault(row, Fault.BODY_COMPRESSION, "a body that decompresses within its limit", str(error), body)
            return None


def record_fault(
    fault_notes: Notes,
    decoded_batch: DecodedBatch,
    row: int,
    bad_range_counter: BadRangeCounter,
    fault: Fault,
    expected: str,
    found: str,
    raw: bytes,
) -> None:
    """Note that no column can store a value of a row, once for each row, and count the row as damaged.

    Raises:
        DamagedLogError: in mode FAILFAST.
    """
    if row not in fault_notes:
        fault_notes[row] = bad_range_counter.count_bad_range(
            *decoded_batch.record_extent(row), fault, expected, found, raw[:FIRST_BYTES]
        )


def describe_invalid_utf8(raw: bytes) -> str:
    """Return the first byte that is not UTF-8, and its position in the text."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"byte {raw[error.start]:#04x} at {error.start} of {len(raw)}: {error.reason}"
    return "UTF-8"
