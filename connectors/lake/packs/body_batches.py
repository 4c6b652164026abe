"""Bodies of rows in Arrow batches, read from the packs in batches of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.lake.packs.compiled_copying import UNKNOWN_CRC
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.frames import MAX_FRAME_BYTES, PackRefs
from commitlake.connectors.lake.packs.pack_stores import PackStore
from commitlake.connectors.lake.packs.reader import FrameCache, read_bodies
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.bodies import decompress_as
from commitlake.connectors.reading.errors import BodyError
from commitlake.schemas.errors import UsageError
from commitlake.schemas.layouts.rocketmq.sysflag import BodyCodec
from commitlake.schemas.tables.messages import BODY_PLACE

MAX_JSON_BYTES = 8 << 20
"""Size of the largest body that is checked to be JSON; the check takes up to 25 times its size in memory."""
BATCH_BYTES = 64 << 20  # size of the bodies in one Arrow batch, which a worker and the JVM hold at once for each task


class BodyForm(StrEnum):
    """The form in which bodies are returned, such as bytes or text."""

    BYTES = "bytes"
    """As the producer sent them."""
    TEXT = "text"
    """As text; a body that is not UTF-8 is null, with an error."""
    JSON = "json"
    """As the text of a JSON document; a body that is none, in UTF-8, is null, with an error."""

    @classmethod
    def from_name(cls, name: str | None) -> BodyForm | None:
        """Return the form with the given name; None if no name is given.

        Raises:
            UsageError: if no form has the name.
        """
        try:
            return None if name is None else cls(name)
        except ValueError:
            raise UsageError(f"body: expected one of {', '.join(cls)}, found {name!r:.50}") from None


def batches_with_bodies(
    batch: pa.RecordBatch, store: PackStore, cache: FrameCache, max_frame_bytes: int = MAX_FRAME_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield a batch's rows with their bodies, split into several batches if the bodies are large.

    Args:
        batch: has `body_ref` and `body_crc`; rows of one pack should be together, or the pack is read more than once.
        cache: cache of frames, kept from one batch to the next.
        max_frame_bytes: see `read_bodies`.

    Yields:
        The batch's columns and `body`, in order; bodies exceed `BATCH_BYTES` only if a single one does.

    Raises:
        PackError: if a body is not available or does not match.
    """
    refs = batch.column("body_ref")
    fields = pa.RecordBatch.from_arrays(refs.flatten(), names=[field.name for field in refs.type])
    crcs = _to_int64(batch.column("body_crc"), UNKNOWN_CRC)
    # Negative lengths are damage, which the reader reports; here they must only not confuse the sizes.
    for start, end in _divide_rows_by_body_size(np.maximum(_to_int64(fields.column("length"), 0), 0)):
        rows = batch.slice(start, end - start)
        runs = [
            _read_pack_bodies(fields.slice(first, last - first), crcs[first:last], store, cache, max_frame_bytes)
            for first, last in group_rows_by_pack(fields.column("pack"), start, end)
        ]
        body = runs[0] if len(runs) == 1 else pa.concat_arrays(runs)
        yield pa.RecordBatch.from_arrays([*rows.columns, body], names=[*rows.schema.names, "body"])


def decompress_bodies(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield a batch's rows with bodies as the producers sent them, split into several batches if these are large.

    Args:
        batch: has `body` as stored, and `body_codec`.
        max_bytes: largest size of a decompressed body.

    Yields:
        The batch with decompressed bodies, and `body_error`: why a body could not be decompressed, which is null then.
    """
    codecs, stored = batch.column("body_codec").to_pylist(), batch.column("body")
    # Most bodies are stored as they are, and are never turned into Python objects.
    packed = [row for row, codec in enumerate(codecs) if codec != BodyCodec.NONE and stored[row].is_valid]
    start = size = 0
    bodies: dict[int, bytes | None] = {}
    errors: dict[int, str] = {}
    for row in packed:
        codec = codecs[row]
        try:
            known = BodyCodec(codec) if codec in set(BodyCodec) else BodyCodec.UNKNOWN
            bodies[row] = decompress_as(stored[row].as_py(), known, max_bytes)
        except BodyError as error:
            bodies[row], errors[row] = None, str(error)
        size += len(bodies[row] or b"")
        if size >= BATCH_BYTES:
            yield _replace_bodies(batch, start, row + 1, bodies, errors)
            start, size, bodies, errors = row + 1, 0, {}, {}
    if start < batch.num_rows or not batch.num_rows:
        yield _replace_bodies(batch, start, batch.num_rows, bodies, errors)


def convert_bodies(batch: pa.RecordBatch, body_form: BodyForm) -> pa.RecordBatch:
    """Return a batch with its bodies converted to the given form: bytes, text, or checked JSON text.

    Args:
        batch: has `body` as the producers sent them, and `body_error`, both as `decompressed` returns them.
        body_form: the form; as text, `body` is a string.

    Returns:
        The batch; a body that does not have the form is null, and `body_error` says why.
    """
    if body_form is BodyForm.BYTES:
        return batch
    errors = batch.column("body_error").to_pylist()
    texts: list[str | None] = []
    for row, body in enumerate(batch.column("body").to_pylist()):
        text, error = (None, None) if body is None else _body_to_text(body, is_json=body_form is BodyForm.JSON)
        texts.append(text)
        errors[row] = errors[row] or error
    batch = batch.set_column(batch.schema.get_field_index("body"), "body", pa.array(texts, pa.string()))
    place = batch.schema.get_field_index("body_error")
    return batch.set_column(place, "body_error", pa.array(errors, pa.string()))


def _body_to_text(body: bytes, *, is_json: bool) -> tuple[str | None, str | None]:
    """Return a body as text, or the reason why it is not valid text or JSON; the other value is None."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        return None, f"expected UTF-8, found the byte 0x{body[error.start]:02x} at {error.start}"
    if is_json and len(body) > MAX_JSON_BYTES:
        return None, f"expected at most {MAX_JSON_BYTES:,} bytes of JSON, found {len(body):,}"
    if is_json:
        try:
            json.loads(text, parse_int=_ignore_number, parse_float=_ignore_number, parse_constant=_refuse_json_constant)
        except (ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, ValueError) else "lists or objects that are nested too deeply"
            return None, f"expected JSON: {why}"
    return text, None


def _ignore_number(_: str) -> None:
    """Return None for a number in JSON, because only validity matters and Python refuses numbers with many digits."""


def _refuse_json_constant(constant: str) -> Any:
    raise ValueError(f"expected valid JSON, found {constant}, which JSON does not have")


def _replace_bodies(
    batch: pa.RecordBatch, start: int, end: int, bodies: Mapping[int, bytes | None], errors: Mapping[int, str]
) -> pa.RecordBatch:
    rows = batch.slice(start, end - start)
    texts = pa.array([errors.get(row) for row in range(start, end)], pa.string())
    if bodies:
        place, values = rows.schema.get_field_index("body"), rows.column("body")
        found = [bodies[row] if row in bodies else values[row - start].as_py() for row in range(start, end)]
        rows = rows.set_column(place, "body", pa.array(found, pa.binary()))
    return rows.append_column("body_error", texts)


def _divide_rows_by_body_size(body_lengths: Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows whose bodies have at most `BATCH_BYTES`, or of a single row with a larger body."""
    ends = np.cumsum(body_lengths)
    start = 0
    while start < len(body_lengths):
        taken = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, taken + BATCH_BYTES, side="right")))
        yield start, end
        start = end


def group_rows_by_pack(packs: pa.Array, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield maximal ranges of consecutive rows whose bodies are in the same pack, or in none."""
    codes = _to_int64(packs.slice(start, end - start).dictionary_encode().indices, -1)
    changes = np.flatnonzero(codes[1:] != codes[:-1]) + 1 + start
    yield from pairwise([start, *changes.tolist(), end])


def _read_pack_bodies(
    fields: pa.RecordBatch, crcs: Array, store: PackStore, cache: FrameCache, max_frame_bytes: int
) -> pa.Array:
    pack = fields.column("pack")[0].as_py()
    if pack is None:
        return pa.nulls(len(fields), pa.binary())
    for name in fields.schema.names:
        if fields.column(name).null_count:
            advice = "The table's body_ref was not written by 'archive', or is damaged"
            raise PackError(pack, None, f"a body_ref with a {name}", "null", advice)
    places = PackRefs(*(_to_int64(fields.column(name), 0) for name in BODY_PLACE.names[1:]))
    return read_bodies(store, pack, places, crcs, max_frame_bytes=max_frame_bytes, cache=cache)


def _to_int64(values: pa.Array, null_value: int) -> Array:
    numbers: Array = values.cast(pa.int64()).fill_null(null_value).to_numpy(zero_copy_only=False)
    return numbers
