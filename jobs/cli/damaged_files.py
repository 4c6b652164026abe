"""Damaged data files that a question comes upon: said by their names and exit code 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from deltalake.exceptions import TableNotFoundError

from commitlake.connectors.lake.log_check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import QueryError


@contextmanager
def naming_damaged_files(lake: LakePaths, tables: Iterable[str]) -> Iterator[None]:
    """Name the damaged data file by which a question to some tables of a lake failed.

    Args:
        lake: where the tables lie.
        tables: those that are read.

    Raises:
        LogDamagedError: if a data file is damaged.
        QueryError: as it came, if none is.
    """
    try:
        yield
    except QueryError as error:
        for table in tables:
            try:
                refuse_damaged_files(getattr(lake, table), str(error))
            except TableNotFoundError:
                continue
        raise


def refuse_damaged_files(uri: str, reason: str) -> None:
    """Name the first damaged data file of a table, where an engine failed by one.

    Args:
        uri: path or URI of the table.
        reason: what the engine said; a question that it does not understand is no reason to look at files.

    Raises:
        LogDamagedError: if a data file is damaged.
    """
    if not any(word in reason.lower() for word in ("parquet", "object store", "not found")):
        return
    from commitlake.pipelines.maintenance.data_check import find_damaged_files  # only where it is wanted

    damage = next(find_damaged_files(uri, deep=False), None) or next(find_damaged_files(uri, deep=True), None)
    if damage is not None:
        raise LogDamagedError(f"{uri}: data file {damage}. {WAY_OUT}")
    if reason.lower().startswith("parquet"):  # of a page's header, which no checksum covers
        raise LogDamagedError(
            f"{uri}: a data file is damaged, and its pages' checksums do not tell which: {reason}. Compare the files "
            f"with a copy of the lake; once the damaged one is moved away, {WAY_OUT}"
        )
