"""SQL queries to a lake without a JVM, by the deltalake package.

It suits results that fit into one process, and opens a table in tens of milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from commitlake.schemas.errors import CommitLakeError, ExitCode

_ENGINE_PREFIX = re.compile(r"^(?:[A-Z]\w* error(?:: | -> )|\w+Error\(\"?|Execution error: |Error during planning: )+")
_TIME_RANGE = re.compile(r"Timestamp -?\d+ out of range")
_SORT_MEMORY = "512M"
_ONE_SORT = {"datafusion.execution.target_partitions": "1"}


class QueryError(CommitLakeError):
    """A query is invalid; the message is the engine's, for a user."""


def run_sql(table: DeltaTable, table_name: str, sql: str, *, sorts_large_result: bool = False) -> pa.RecordBatchReader:
    """Return the result of a SQL query over one table as a stream of batches.

    Args:
        table_name: name of the table in the query.
        sql: the query.
        sorts_large_result: see `run_sql_over_tables`.
    """
    return run_sql_over_tables({table_name: table}, sql, sorts_large_result=sorts_large_result)


def run_sql_over_tables(
    tables: Mapping[str, DeltaTable], sql: str, *, sorts_large_result: bool = False
) -> pa.RecordBatchReader:
    """Return the result of a SQL query as a stream of batches; reading a batch can raise QueryError, too.

    Args:
        tables: the tables, by their names in the query.
        sql: the query.
        sorts_large_result: whether the result may be as large as the table, and is sorted. Then the engine sorts in
            bounded memory, with the rest on disk, in one thread: several would share the memory and fail if each has
            too little.

    Raises:
        QueryError: if the engine cannot parse or execute it.
    """
    with _convert_engine_errors():
        # With one partition a sort has the whole limit to itself, and writes what does not fit into files.
        engine = QueryBuilder(_ONE_SORT if sorts_large_result else None)
        for name, table in tables.items():
            engine = engine.register(name, table)
        if sorts_large_result:
            engine.execute(f"SET datafusion.runtime.memory_limit = '{_SORT_MEMORY}'").read_all()
        answer = pa.RecordBatchReader.from_stream(engine.execute(sql))
        # Errors come while batches are read, long after this function has returned, and must be converted then, too.
        return pa.RecordBatchReader.from_batches(answer.schema, _read_batches(answer))


def _read_batches(answer: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _convert_engine_errors():
        yield from answer


@contextmanager
def _convert_engine_errors() -> Iterator[None]:
    try:
        yield
    except (DeltaError, pa.ArrowException) as error:
        message = clean_engine_message(str(error))
        if _TIME_RANGE.match(message):
            raise QueryError(
                f"{message}: functions such as date_bin and date_trunc can compute only times from 1677 to 2262; "
                "leave out the others by a condition, as in WHERE store_timestamp < '2262-01-01T00:00:00Z'",
                exit_code=ExitCode.DAMAGE,
            ) from None
        raise QueryError(message) from None
    except BaseException as error:
        # A panic of the engine, which is written in Rust, is not an `Exception` in Python.
        if type(error).__name__ != "PanicException":
            raise
        raise QueryError(f"the query failed in the engine: {clean_engine_message(str(error))}") from None


def clean_engine_message(text: str) -> str:
    """Shorten an engine's message to its first line and its suggestion, without the names of error classes."""
    lines = _ENGINE_PREFIX.sub("", text.strip()).removesuffix('")').replace("\\n", " ").splitlines()
    return " ".join([*lines[:1], *(line for line in lines[1:2] if line.startswith("Did you mean"))]) or "no message"
