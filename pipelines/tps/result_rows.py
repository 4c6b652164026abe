"""Converts rows of an engine's answer to Python values.

pyarrow's own conversion of times imports pandas when it is first used, which takes half a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from commitlake.connectors import arrays_without_pandas


def to_utc_times(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return the times of a column in UTC; None for null and for a time outside Python's calendar.

    Args:
        column: a column of timestamps in any unit.
    """
    return list(arrays_without_pandas.to_utc_times(column.cast(pa.timestamp("us", column.type.tz))))


def to_row_dicts(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """Yield rows as dictionaries by column name."""
    for batch in batches:
        columns = [
            to_utc_times(column) if pa.types.is_timestamp(column.type) else column.to_pylist()
            for column in batch.columns
        ]
        for values in zip(*columns, strict=True):
            yield dict(zip(batch.schema.names, values, strict=True))
