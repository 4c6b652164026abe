"""The progress of the tables that follow `messages`, and checks that no table has lost commits.

This module needs no schema, because look-ups, which must start quickly, import it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from deltalake import DeltaTable

from commitlake.connectors.lake.archive_commits import APPLICATION_ID, ArchiveCommit, read_commits, read_last_commit
from commitlake.connectors.lake.delta_log.check import WAY_OUT, LogDamagedError
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.paths import LakeError

_LOOKED_AT = 64
"""Largest number of commits of `messages` that a query to another table reads."""


def last_finished_sequence(lake: Lake, table: str) -> int:
    """Return the number of the newest archive run that a table, such as `archive_runs`, contains; 0 for none."""
    return read_sequence_number(lake.find(table))


def read_sequence_number(table: DeltaTable | None) -> int:
    """Return the number of the newest archive run that an open table contains; 0 if there is no run or no table."""
    return 0 if table is None else table.transaction_version(APPLICATION_ID) or 0


def check_finished_runs(lake: Lake, finished_sequence: int, newest_sequence: int) -> None:
    """Refuse a lake in which `archive_runs` records more finished runs than `messages` has commits.

    Args:
        finished_sequence: the newest finished run in `archive_runs`.
        newest_sequence: sequence of the newest commit, as it was read before.

    Raises:
        LogDamagedError: if that is still so after the newest commit is read again.
    """
    # The usual case needs no look at the log. More finished runs than commits may also mean that a run has finished
    # since.
    if finished_sequence <= newest_sequence:
        return
    last = read_last_commit(lake)
    if last is None or last.sequence < finished_sequence:
        raise LogDamagedError(
            f"{lake.uri('messages')}: the newest archive commit in its _delta_log is "
            f"{last.sequence if last else 'none'}, but the table archive_runs has {finished_sequence}: the last "
            f"entries of the log are lost. {WAY_OUT}"
        )


def missing_runs(lake: Lake, table: str, commits: Iterable[ArchiveCommit]) -> list[int]:
    """Return the numbers of finished archive runs whose files are missing from a table updated after `messages`.

    Args:
        table: name of the following table.
        commits: the commits of `messages`.
    """
    finished = last_finished_sequence(lake, "archive_runs")
    followed = last_finished_sequence(lake, table)
    return [made.sequence for made in commits if made.files.get(table) and followed < made.sequence <= finished]


def check_is_up_to_date(lake: Lake, table: str) -> None:
    """Refuse a table that is updated after `messages`, but lacks rows of its newest commits.

    Raises:
        LogDamagedError: if it lacks such rows.
    """
    try:
        newest = list(islice(read_commits(lake), _LOOKED_AT))
    except (LakeError, LogDamagedError):  # reported when messages is read
        return
    missing = missing_runs(lake, table, newest)
    if missing:
        raise LogDamagedError(
            f"{lake.uri(table)}: the rows of archive run {missing[0]} are missing, although it is finished: the last "
            f"entries of the table's log, or all of it, are lost. {WAY_OUT}"
        )
