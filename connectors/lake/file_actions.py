"""The data files of a Delta table, as its log names them."""

from __future__ import annotations

import pyarrow as pa
from deltalake import DeltaTable


def file_actions(table: DeltaTable) -> pa.Table:
    """Return a row for each data file of a table: path, size, statistics and partition.

    `pyarrow.table` would import pandas, which takes longer than a small question.
    """
    return pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
