"""Converts rows of an engine's answer to Python values.

pyarrow's own conversion of times imports pandas when it is first used, which takes half a second.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from commitlake.schemas.times import EPOCH

_MICROSECOND = datetime.timedelta(microseconds=1)


def times_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the times of a column of timestamps as datetimes in UTC, None for a null."""
    counts = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if count is None else EPOCH + count * _MICROSECOND for count in counts]


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries by column name."""
    for batch in batches:
        columns = [
            times_of(column) if pa.types.is_timestamp(column.type) else column.to_pylist() for column in batch.columns
        ]
        for values in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, values, strict=True))
