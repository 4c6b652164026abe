"""Messages counted by window, as an audit does it without Spark."""

from __future__ import annotations

import pyarrow as pa

from commitlake.pipelines.audit.counts_by_window import count_messages_by_window
from tests.support.profiles import Row, table_of


def windows_of(rows: list[Row]) -> pa.Table:
    """Return the windows of rows of `messages`, as a table with the columns of `AUDIT`."""
    table = table_of(rows)
    dates = table.column("store_timestamp").cast(pa.date32(), safe=False)
    return count_messages_by_window(table.append_column("store_date", dates).combine_chunks())
