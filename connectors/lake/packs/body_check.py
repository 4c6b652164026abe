"""Comparison of bodies with their rows for an audit, which reports a missing body instead of failing.

Each body is read from the place in its row, and measured: its actual size and CRC, or null if it is not available.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from commitlake.connectors.lake.packs.body_batches import batches_with_bodies, pack_runs
from commitlake.connectors.lake.packs.errors import PackError
from commitlake.connectors.lake.packs.merged import pack_size
from commitlake.connectors.lake.packs.reader import FrameCache
from commitlake.connectors.lake.packs.stores import PackStore

KEPT = ("broker", "topic", "queue_id", "queue_offset", "physical_offset", "size", "store_timestamp")
ERROR = "error"
"""The column with the reason why a body is not available."""


def check_bodies(rows: pa.RecordBatch, store: PackStore, cache: FrameCache) -> Iterator[pa.RecordBatch]:
    """Yield the actual size and CRC of the bodies of rows, or an error where a body is not available.

    Args:
        rows: rows with `KEPT`, `body_ref`, `body_size` and `body_crc`; those of one pack together.
        cache: cache of frames, kept from one batch to the next.

    Yields:
        `KEPT`, the actual `body_size` and `body_crc` (null if the body is not available), and `ERROR`.
    """
    names = rows.column("body_ref").field("pack")
    for first, last in pack_runs(names, 0, rows.num_rows):
        yield from _check_pack(rows.slice(first, last - first), names[first].as_py(), store, cache)


def _check_pack(rows: pa.RecordBatch, pack: str | None, store: PackStore, cache: FrameCache) -> list[pa.RecordBatch]:
    """Check the rows of one pack together; if the pack is missing, report all of them without further reads."""
    if pack is None:
        return [_rows_with_error(rows, "the message has no body_ref")]
    try:
        pack_size(store, pack)
    except PackError as error:
        return [_rows_with_error(rows, str(error))]
    return _check_rows(rows, store, cache)


def _check_rows(rows: pa.RecordBatch, store: PackStore, cache: FrameCache) -> list[pa.RecordBatch]:
    """Check rows together; if that fails, check the halves separately, down to the faulty rows."""
    try:
        # The reader has compared each body with its CRC, so its size and CRC are those of the row.
        return [
            _result_rows(part, pc.binary_length(part.column("body")), part.column("body_crc"), pa.nulls(part.num_rows))
            for part in batches_with_bodies(rows, store, cache)
        ]
    except PackError as error:
        if rows.num_rows == 1:
            return [_rows_with_error(rows, str(error))]
        half = rows.num_rows // 2
        return [*_check_rows(rows.slice(0, half), store, cache), *_check_rows(rows.slice(half), store, cache)]


def _rows_with_error(rows: pa.RecordBatch, error: str) -> pa.RecordBatch:
    return _result_rows(rows, pa.nulls(rows.num_rows), pa.nulls(rows.num_rows), pa.repeat(error, rows.num_rows))


def _result_rows(rows: pa.RecordBatch, sizes: pa.Array, crcs: pa.Array, errors: pa.Array) -> pa.RecordBatch:
    columns = [rows.column(name) for name in KEPT]
    found = [sizes.cast(pa.int32()), crcs.cast(pa.int32()), errors.cast(pa.string())]
    return pa.RecordBatch.from_arrays([*columns, *found], [*KEPT, "body_size", "body_crc", ERROR])
