"""One window's records as a batch, and the rows among them with a value that no column can hold."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from connectors.commitlog.bodies import decompress
from connectors.commitlog.decoded import DecodedBatch
from connectors.commitlog.errors import BodyError
from connectors.commitlog.options import BodyForm, Mode
from connectors.commitlog.refused import CORRUPT_RECORD, FIRST_BYTES, Refused
from connectors.commitlog.request import Request
from schemas.layouts.scan import Fault
from schemas.layouts.sysflag import COMPRESSED

_MAX_TIMESTAMP_MS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z: what Python, Spark and SQL all can hold
Notes = dict[int, dict[str, object]]
"""What is wrong with rows, by their numbers: values of `_corrupt_record`."""
_TIMESTAMPS = ("born_timestamp", "store_timestamp")


class RowBatch:
    """One batch in the making: columns, and rows with a value that no column can hold."""

    def __init__(self, decoded: DecodedBatch, request: Request, refused: Refused, notes: Notes | None = None) -> None:
        self._decoded = decoded
        self._request = request
        self._refused = refused
        self._names = set(request.schema.names)
        self._notes: Notes = notes or {}

    def build(self) -> pa.RecordBatch | None:
        """The batch, or None where the mode dropped all of it."""
        if self._names & {"topic", "kind"}:
            self._note_topics()
        columns = [self._column(field) for field in self._request.schema]
        if self._notes and CORRUPT_RECORD in self._names:
            place = self._request.schema.get_field_index(CORRUPT_RECORD)
            columns[place] = pa.array([self._notes.get(row) for row in range(self._decoded.rows)], columns[place].type)
        schema = self._request.schema
        if self._request.encoded:
            schema = pa.schema([field.with_type(column.type) for field, column in zip(schema, columns, strict=True)])
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
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
        return column if column.type == field.type or self._request.encoded else column.cast(field.type)

    def _note(self, row: int, fault: Fault, expected: str, found: str, raw: bytes = b"") -> None:
        note(self._notes, self._decoded, row, self._refused, fault, expected, found, raw)

    def _timestamps(self, field: pa.Field) -> pa.Array:
        milliseconds = self._decoded.int64(field.name)
        outside = milliseconds.view(np.uint64) > _MAX_TIMESTAMP_MS  # a negative one is a large one
        if not outside.any():
            return self._decoded.column(field.name)
        for row in np.flatnonzero(outside):
            expected = f"{field.name} of 0 to {_MAX_TIMESTAMP_MS} ms"
            self._note(int(row), Fault.TIMESTAMP, expected, str(milliseconds[row]))
        return pa.array(np.where(outside, 0, milliseconds) * 1000, pa.int64(), mask=outside).cast(field.type)

    def _note_topics(self) -> None:
        for code in self._decoded.topics.replaced:
            value = self._decoded.topics.values[code]
            for row in np.flatnonzero(self._decoded.topic_codes == code):
                self._note(int(row), Fault.TOPIC_ENCODING, "a topic in UTF-8", first_not_utf8(value), value)

    def _decompressed(self, field: pa.Field) -> pa.Array:
        bodies = self._decoded.bodies()
        flags = self._decoded.sys_flags
        compressed = np.flatnonzero(flags & COMPRESSED)
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


def note(
    notes: Notes,
    decoded: DecodedBatch,
    row: int,
    refused: Refused,
    fault: Fault,
    expected: str,
    found: str,
    raw: bytes,
) -> None:
    """Say what is wrong with a row, once.

    Raises:
        DamagedLogError: in mode FAILFAST.
    """
    if row not in notes:
        notes[row] = refused.take(*decoded.extent_of(row), fault, expected, found, raw[:FIRST_BYTES])


def first_not_utf8(raw: bytes) -> str:
    """The first byte that is not UTF-8, and where it is."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        return f"byte {raw[error.start]:#04x} at {error.start} of {len(raw)}: {error.reason}"
    return "UTF-8"
