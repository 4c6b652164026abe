"""`query --sql`: a SELECT over the lake's tables, without a JVM or, for large answers, by Spark."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import QueryError, run_sql_over_tables
from commitlake.jobs.arguments.lake_location import open_packs
from commitlake.jobs.arguments.similar_names import suggest_similar_name
from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.damaged_file_errors import raise_for_damaged_file
from commitlake.jobs.cli.lost_range_warnings import OF_MESSAGES, warn_of_lost_ranges
from commitlake.jobs.query.arguments import QueryOptions
from commitlake.jobs.query.bodies import BodyTextReader, make_body_fetcher
from commitlake.jobs.query.sql_body_calls import expand_body_calls, explain_body_error, replace_body_positions
from commitlake.jobs.report.rows_output import rows_of_batches, write_rows
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.lake_tables import LAKE_TABLES

_NO_TABLE = re.compile(
    r"table '(?P<name>[^']+)' not found|table or view `(?P<spark>[^ ]+)` cannot be found", re.IGNORECASE
)


def run_sql_query(query: QueryOptions, lake: Lake, open_table: Callable[[Lake, str], DeltaTable]) -> ExitCode:
    """Run the SELECT, print its rows, and report their number and whether a limit cut them off.

    Args:
        open_table: function that opens a table.
    """
    assert query.sql is not None
    started = time.monotonic()
    sql = expand_body_calls(query.sql.strip().rstrip(";"))
    tables = _open_named_tables(sql, lake, open_table)
    try:
        answer: Iterable[pa.RecordBatch]
        if query.is_on_spark:
            columns, answer = _run_select_on_spark(lake, tables, sql, query.limit)
        else:
            columns, answer = _run_select(tables, sql, sorts_all=not query.limit)
        opened: list[BodyTextReader] = []

        def open_bodies() -> BodyTextReader:
            opened.append(BodyTextReader(make_body_fetcher(open_packs(lake), keeps_stored_form=query.stored_body)))
            return opened[0]

        rows, columns = replace_body_positions(rows_of_batches(answer, 0), columns, open_bodies)
        shown = list(islice(rows, query.limit)) if query.limit else rows
        missing = warn_of_lost_ranges("query", lake) if _reads_messages(sql) else []
        count = write_rows(query.output, iter(shown), columns, missing)
        cut = bool(query.limit) and next(rows, None) is not None
    except QueryError as error:
        raise_for_damaged_file(lake, [*tables, "gaps", "topic_minutes"], str(error))  # the last two for lost ranges
        reason = _explain_unknown_table(explain_body_error(query.sql, str(error)))
        hint = "'commitlake query --tables' lists the tables, and --describe TABLE the columns of one"
        raise JobError(f"the query is invalid: {reason}", hint) from None
    if not query.quiet:
        seconds = time.monotonic() - started
        more = f", and there are more: --limit {query.limit} cut the result; --limit 0 gives all" if cut else ""
        print(f"{format_count(count, 'row')}{more} ({seconds:.1f} s)", file=sys.stderr)
    whole = ExitCode.DAMAGE if missing else ExitCode.OK
    return max(opened[0].report_unreadable(), whole) if opened else whole


def _reads_messages(sql: str) -> bool:
    return any(re.search(rf"\b{name}\b", sql, re.IGNORECASE) for name in OF_MESSAGES)


def _explain_unknown_table(message: str) -> str:
    """Return an engine's error message; if a table is unknown, suggest the most similar one."""
    unknown = _NO_TABLE.search(message)
    if unknown is None:
        return message
    name = (unknown["name"] or unknown["spark"]).removeprefix("datafusion.public.").strip("`")
    return f"there is no table {name!a}.{suggest_similar_name(name, LAKE_TABLES)}"


def _open_named_tables(sql: str, lake: Lake, open_table: Callable[[Lake, str], DeltaTable]) -> dict[str, DeltaTable]:
    """Open the tables named in a SELECT, and always `messages`, so that a missing lake is reported."""
    tables = {"messages": open_table(lake, "messages")}
    for name in LAKE_TABLES:
        if name not in tables and re.search(rf"\b{name}\b", sql, re.IGNORECASE):
            try:
                tables[name] = open_table(lake, name)
            except NoTableError as error:
                raise JobError(str(error), "it is created with its first row") from None
    return tables


def _run_select_on_spark(
    lake: Lake, tables: Iterable[str], sql: str, limit: int
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Run a SELECT on Spark, and fetch one row more than the limit, to detect that there are more."""
    from commitlake.connectors.lake.spark_reader import run_spark_select
    from commitlake.connectors.spark.session import get_session

    places = {name: lake.uri(name) for name in tables}
    return run_spark_select(get_session("query", lake.s3), sql, places, limit + 1 if limit else 0)


def _run_select(
    tables: dict[str, DeltaTable], sql: str, *, sorts_all: bool
) -> tuple[list[str], Iterable[pa.RecordBatch]]:
    """Run a SELECT in this process; any other statement is refused before it has an effect.

    The engine could also write files (COPY) and change its settings. Only a query is valid as a named subquery, and
    EXPLAIN does not run it. The engine accepts only one statement, so no second one can follow.
    """
    try:
        run_sql_over_tables(tables, f"EXPLAIN WITH answer AS (\n{sql}\n) SELECT * FROM answer").read_all()
    except QueryError as error:
        raise QueryError(f"expected exactly one SELECT: {error}") from None
    answer = run_sql_over_tables(tables, sql, sorts_large_result=sorts_all)
    return [field.name for field in answer.schema], answer
