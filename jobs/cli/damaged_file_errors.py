"""Causes of a failed query: a damaged data file, which the error then names, or an invalid condition of the user.

The error for a damaged file has exit code 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import QueryError
from commitlake.jobs.cli.command import JobError


@contextmanager
def explain_damaged_files(lake: Lake, tables: Iterable[str]) -> Iterator[None]:
    """If the block fails because of a damaged data file, raise an error that names the file.

    Args:
        tables: names of the tables that the block reads, by a query or by Arrow.

    Raises:
        LogDamagedError: if a data file is damaged.
        Exception: the original error, if no data file is damaged.
    """
    try:
        yield
    except (QueryError, pa.ArrowException, OSError) as error:
        raise_for_damaged_file(lake, tables, str(error))
        raise


@contextmanager
def explain_invalid_where(where: str | None, lake: Lake, tables: Collection[str] = ("messages",)) -> Iterator[None]:
    """If the query in the block fails, raise an error that says that `--where` is invalid, or names a damaged file.

    Args:
        where: the condition; without one, an error of the query engine stays as it is.
        tables: names of the tables of the lake that the query reads.

    Raises:
        JobError: if a condition was given, and no data file is damaged.
        LogDamagedError: if a data file is damaged.
    """
    try:
        yield
    except QueryError as error:
        if tables:
            raise_for_damaged_file(lake, tables, str(error))
        if where is None:
            raise
        raise JobError(f"--where is not a valid condition: {error}") from None


def damage_message(lake: Lake, table: str, reason: str) -> str:
    """Return an error message that names the damaged data file; if there is none, the engine's message."""
    try:
        raise_for_damaged_file(lake, [table], reason)
    except LogDamagedError as error:
        return str(error)
    return reason


def raise_for_damaged_file(lake: Lake, tables: Iterable[str], reason: str) -> None:
    """Look for a damaged data file in the given tables after a failed query, and raise an error that names the first.

    Args:
        tables: names of the tables that the query reads.
        reason: error message of the engine; if it is about an invalid query, no files are checked.

    Raises:
        LogDamagedError: if a data file is damaged.
    """
    if not any(word in reason.lower() for word in ("parquet", "object store", "object at location")):
        return
    from commitlake.pipelines.repair.data_file_check import find_damaged_files  # slow to load, and rarely needed

    asked, lake = list(tables), Lake(lake.root, lake.s3)  # at its newest version, whose files are there
    for table in asked:
        for deep in (False, True):
            for damage in find_damaged_files(lake, table, is_deep=deep):
                raise LogDamagedError(f"{lake.uri(table)}: the data file {damage}. {WAY_OUT}")
    if reason.lower().startswith("parquet"):  # page headers have no checksum
        raise LogDamagedError(
            f"{lake.root}: a data file of {' or '.join(asked)} is damaged, but the checksums of its pages do not show "
            f"which: {reason}. Compare the files with a copy of the lake and move the damaged one away; then {WAY_OUT}"
        )
