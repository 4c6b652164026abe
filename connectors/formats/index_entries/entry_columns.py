"""Columns of entries, and batches of rows from many short ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from commitlake.connectors.formats.index_entries.entry_damage import CORRUPT_ENTRY
from commitlake.connectors.numpy_arrays import Array
from commitlake.connectors.reading.decoding.row_batch import MAX_TIMESTAMP_MS

_BATCH_ROWS = 1 << 14


def make_entry_batch(schema: pa.Schema, row_count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """Return an Arrow batch with the columns of a schema, given their values by name; other columns are null.

    Args:
        row_count: the number of rows.
        columns: an array of numbers, one text or number for all rows, or an Arrow array; other columns are null.
    """
    return pa.RecordBatch.from_arrays(
        [_make_column(field, row_count, columns.get(field.name)) for field in schema], schema=schema
    )


def _make_column(field: pa.Field, row_count: int, value: Any) -> pa.Array:
    if value is None:
        return pa.nulls(row_count, field.type)
    if isinstance(value, str | int):
        return pa.repeat(pa.scalar(value, field.type), row_count)
    if isinstance(value, pa.Array):
        return value
    # Arrow has no big-endian numbers, in which a broker's entries are.
    return pa.array(value.astype(field.type.to_pandas_dtype(), copy=False), field.type)


def storable_time_mask(milliseconds: Array) -> Array:
    """Return a mask of those times, in ms since 1970, that fit in a timestamp column."""
    # As unsigned numbers, negative times are large ones.
    fits: Array = milliseconds.astype(np.int64).view(np.uint64) <= MAX_TIMESTAMP_MS
    return fits


def to_timestamp_column(milliseconds: Array) -> pa.Array:
    """Convert times in ms since 1970 to a timestamp column; a time that does not fit becomes null."""
    fits = storable_time_mask(milliseconds)
    micros = np.where(fits, milliseconds, 0).astype(np.int64) * 1000
    return pa.array(micros, pa.int64(), mask=~fits).cast(pa.timestamp("us", tz="UTC"))


def make_bad_range_batch(
    schema: pa.Schema, corrupt_records: Sequence[Mapping[str, Any]], other_columns: Mapping[str, Any]
) -> pa.RecordBatch:
    """Return a batch with a row for each bad range, in which only `_corrupt_record` and the given columns are not null.

    Args:
        corrupt_records: values of `_corrupt_record`.
        other_columns: the columns that are known from the position, see `make_entry_batch`.
    """
    field = schema.field(CORRUPT_ENTRY)
    return make_entry_batch(
        schema, len(corrupt_records), {**other_columns, CORRUPT_ENTRY: pa.array(corrupt_records, field.type)}
    )


def join_short_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join consecutive short batches, such as those of small queues, into longer batches; drop empty ones."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield pa.concat_batches(waiting)
            waiting, rows = [], 0
    if waiting:
        yield pa.concat_batches(waiting)
