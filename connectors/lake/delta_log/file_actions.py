"""The data files of a Delta table, as its log lists them.

This module passes no Python value to Arrow, because the first one makes Arrow import pandas; see
`arrays_without_pandas`. It does not call `pyarrow.compute` either, whose import takes a tenth of the time of a small
question.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import to_numpy_numbers
from commitlake.schemas.times import from_ms

PARTITION, _TIME = "store_date", "store_timestamp"
TOPIC_TIME = "_store_timestamp"
"""Column of the typed tables of topics with the store time of the message."""


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of a table, as the table's log lists it.

    Attributes:
        path: relative to the table's folder, as the log writes it.
        partition: partition values by column; empty for tables without partitions.
        size: size in bytes.
        rows: number of rows; None if its writer did not record it.
        modified_ms: time at which its rows were added, ms since 1970.
        first_time: smallest store_timestamp; None if not known.
        last_time: largest store_timestamp; None if not known.
        statistics: statistics in the log, as JSON.
        has_deletions: True if some of its rows are deleted by a deletion vector.
        has_topic_rows: True if its rows are those of the typed table of a topic, which expire with their messages.
    """

    path: str
    partition: dict[str, str | None]
    size: int
    rows: int | None
    modified_ms: int
    first_time: datetime.datetime | None = None
    last_time: datetime.datetime | None = None
    statistics: str = "{}"
    has_deletions: bool = False
    has_topic_rows: bool = False

    @property
    def date(self) -> datetime.date:
        """Date that determines the age of the file's rows: that of its partition, or else of its last change.

        Of a typed table it is the date of the newest message: a table that is made later has rows of old messages.
        """
        text = self.partition.get(PARTITION)
        if text is not None:
            return datetime.date.fromisoformat(text)
        if self.has_topic_rows and self.last_time is not None:
            return self.last_time.date()
        return from_ms(self.modified_ms).date()


def read_table_files(table: DeltaTable) -> list[TableFile]:
    """Return the data files of a table, in the order of its log."""
    return [_to_table_file(action) for action in read_file_actions(table).to_pylist()]


def _to_table_file(action: dict[str, Any]) -> TableFile:
    partition = {name: None if value is None else str(value) for name, value in (action.get("partition") or {}).items()}
    least, greatest = action.get("min") or {}, action.get("max") or {}
    time = TOPIC_TIME if TOPIC_TIME in greatest else _TIME
    return TableFile(
        path=action["path"],
        partition=partition,
        size=action["size_bytes"],
        rows=action.get("num_records"),
        modified_ms=action["modification_time"],
        first_time=least.get(time),
        last_time=greatest.get(time),
        has_deletions=bool(action.get("deletion_vector")),
        has_topic_rows=time == TOPIC_TIME,
    )


def read_file_actions(table: DeltaTable) -> pa.Table:
    """Return a row for each data file that a table's log lists: path, size, statistics and partition."""
    return pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()


def column_bounds_per_file(
    actions: pa.Table, column: str, data_type: pa.DataType
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the smallest and largest value of a column in each file; null if the log does not have them.

    Args:
        actions: the result of `read_file_actions`.
        column: a column of the table.
        data_type: type of the column's values.
    """
    least, greatest = (_statistics_column(actions, name, column, data_type) for name in ("min", "max"))
    return least, greatest


def one_value_per_file(actions: pa.Table, column: str) -> pa.ChunkedArray | None:
    """Return a text column's value for each file that has only one; None if it may have several values or nulls.

    Args:
        actions: result of `read_file_actions`.
        column: name of a text column.
    """
    least, greatest = column_bounds_per_file(actions, column, pa.string())
    nulls = _statistics_column(actions, "null_count", column, pa.int64())
    if nulls.null_count or to_numpy_numbers(nulls).any():
        return None
    return least if least.equals(greatest) else None


def _statistics_column(actions: pa.Table, name: str, column: str, data_type: pa.DataType) -> pa.ChunkedArray:
    bounds = actions.column(name) if name in actions.column_names else None
    if bounds is None or bounds.type.get_field_index(column) < 0:
        return pa.chunked_array([pa.nulls(actions.num_rows, data_type)])
    found = bounds.flatten()[bounds.type.get_field_index(column)]
    return found if found.type.equals(data_type) else found.cast(data_type)
