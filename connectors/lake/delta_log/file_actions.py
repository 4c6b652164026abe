"""The data files of a Delta table, as its log lists them.

This module passes no Python value to Arrow, because the first one makes Arrow import pandas; see `plain_arrays`. It
does not call `pyarrow.compute` either, whose import takes a tenth of the time of a small question.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.plain_arrays import numbers_of


def file_actions(table: DeltaTable) -> pa.Table:
    """Return a row for each data file of a table: path, size, statistics and partition."""
    return pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()


def file_bounds(actions: pa.Table, column: str, data_type: pa.DataType) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the smallest and largest value of a column in each file; null if the log does not have them.

    Args:
        actions: the result of `file_actions`.
        column: a column of the table.
        data_type: type of the column's values.
    """
    least, greatest = (_statistics_column(actions, name, column, data_type) for name in ("min", "max"))
    return least, greatest


def one_value_per_file(actions: pa.Table, column: str) -> pa.ChunkedArray | None:
    """Return a text column's value for each file that has only one; None if it may have several values or nulls.

    Args:
        actions: result of `file_actions`.
        column: name of a text column.
    """
    least, greatest = file_bounds(actions, column, pa.string())
    nulls = _statistics_column(actions, "null_count", column, pa.int64())
    if nulls.null_count or numbers_of(nulls).any():
        return None
    return least if least.equals(greatest) else None


def _statistics_column(actions: pa.Table, name: str, column: str, data_type: pa.DataType) -> pa.ChunkedArray:
    bounds = actions.column(name) if name in actions.column_names else None
    if bounds is None or bounds.type.get_field_index(column) < 0:
        return pa.chunked_array([pa.nulls(actions.num_rows, data_type)])
    found = bounds.flatten()[bounds.type.get_field_index(column)]
    return found if found.type.equals(data_type) else found.cast(data_type)
