"""Queries on small tables of a lake, which may not exist yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.plain_arrays import dict_rows

Row = Mapping[str, Any]


def ask(lake: Lake, table: str, sql: str) -> list[Row]:
    """Return the rows of a query on a table; none if the table does not exist.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
    """
    try:
        opened = lake.table(table)
    except NoTableError:
        return []
    rows: list[Row] = list(dict_rows(run_sql(opened, table, sql).read_all()))
    return rows
