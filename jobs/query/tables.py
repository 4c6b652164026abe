"""`query --tables` and `query --describe TABLE`: the tables of a lake, and the columns of one."""

from __future__ import annotations

from commitlake.connectors.lake.catalog_tables import catalog_tables
from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.arguments.similar_names import known_names_hint, suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.query.arguments import QueryOptions
from commitlake.jobs.report.rows_output import write_rows
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.report_columns import Column
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

_TABLES = (Column("table"), Column("rows", 1), Column("columns", 2), Column("contents"))
_COLUMNS = (Column("column"), Column("type", 1), Column("contents"))


def print_tables(query: QueryOptions, lake: Lake) -> ExitCode:
    """Print the existing tables of the lake with their row counts, or the columns of the requested table.

    Raises:
        JobError: if the lake does not have the requested table.
        LakeError: if there is no lake.
    """
    tables = {table.name: table for table in catalog_tables(lake)}
    if query.describe is None:
        rows = [
            {
                "table": table.name,
                "rows": lake.table(table.name).count(),
                "columns": len(table.columns),
                "contents": table.comment.removeprefix("Table of ").removeprefix("Table with "),
            }
            for table in tables.values()
        ]
        write_rows(query.output, rows, _TABLES)
        return ExitCode.OK
    if query.describe not in tables:
        is_known = query.describe in LAKE_TABLES
        why = (
            " yet; it is created with its first row" if is_known else f".{suggest_similar_name(query.describe, tables)}"
        )
        raise JobError(f"--describe: the lake has no table {query.describe!a}{why}", known_names_hint(tables))
    columns = tables[query.describe].columns
    shown = [{"column": one["name"], "type": one["type_text"], "contents": one.get("comment")} for one in columns]
    write_rows(query.output, shown, _COLUMNS)
    return ExitCode.OK
