"""Newest archive runs of a lake, for reports: their times, amounts and problems.

`archive_runs` has the finished runs. A run that was stopped by a critical expectation has rows in `quality_results`
only. Only data files that can hold the newest runs are read, because continuous archiving adds a file with each run,
every other second.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import timestamp_literal

MAX_RUNS = 20
"""Number of runs in a report."""
_RUN_COLUMNS = (
    "sequence, run_id, started_at, finished_at, stores, messages, bytes, quarantined, gaps, recovered"
)  # fmt: skip
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class PastRun:
    """A past archive run, as the lake's tables recorded it.

    Attributes:
        run_id: Its id, as in `archive_runs` and `quality_results`.
        ended_at: Time at which it finished or was stopped; UTC.
        sequence: Its number; None for a run that was stopped.
        seconds: Duration; None if not known, because a later run finished it, or it was stopped.
        stores: Number of stores from which it read.
        messages: Number of rows added to `messages`.
        bytes: Size of the log that it read.
        quarantined: Number of rows added to `quarantine`.
        gaps: Number of rows added to `gaps`.
        unmet: Number of expectations that were not met; None if the run was not judged.
        is_stopped: True if a critical expectation stopped it.
        is_recovered: True if a later run finished it.
    """

    run_id: str
    ended_at: datetime.datetime
    sequence: int | None = None
    seconds: float | None = None
    stores: int = 0
    messages: int = 0
    bytes: int = 0
    quarantined: int = 0
    gaps: int = 0
    unmet: int | None = None
    is_stopped: bool = False
    is_recovered: bool = False


@dataclass(frozen=True, slots=True)
class _QualitySummary:
    """Numbers of unmet expectations of one run, from its rows in `quality_results`."""

    judged_at: datetime.datetime
    unmet: int
    critical: int


def read_past_runs(lake: Lake, limit: int = MAX_RUNS) -> list[PastRun]:
    """Return the newest runs of a lake, the newest first.

    Args:
        limit: Number of runs to return.

    Raises:
        LakeError: There is no lake, or it cannot be read.
    """
    rows = _read_newest_runs(lake, limit)
    oldest = min((row["started_at"] or row["finished_at"] for row in rows), default=None)
    judged = _read_quality_summaries(lake, oldest)
    finished = [_to_past_run(row, judged.get(row["run_id"])) for row in rows]
    known = {row["run_id"] for row in rows}
    stopped = [
        PastRun(run_id, one.judged_at, unmet=one.unmet, is_stopped=True)
        for run_id, one in judged.items()
        if run_id not in known and one.critical
    ]
    return sorted([*finished, *stopped], key=lambda run: run.ended_at, reverse=True)[:limit]


def _read_newest_runs(lake: Lake, limit: int) -> list[dict[str, Any]]:
    try:
        table = lake.table("archive_runs")
    except NoTableError:
        return []
    newest = _largest_value(table, "sequence")
    where = "" if newest is None else f" WHERE sequence > {int(newest) - limit}"
    sql = f"SELECT {_RUN_COLUMNS} FROM archive_runs{where} ORDER BY sequence DESC LIMIT {limit}"
    rows: list[dict[str, Any]] = rows_to_dicts(run_sql(table, "archive_runs", sql).read_all())
    return [row for row in rows if row["finished_at"] is not None]


def _largest_value(table: DeltaTable, column: str) -> Any:
    """Return the largest value of a column from the statistics of its data files; None if a file has no statistics."""
    files = pa.table(table.get_add_actions(flatten=True))
    name = f"max.{column}"
    if name not in files.column_names or files.column(name).null_count:
        return None
    return pc.max(files.column(name)).as_py()


def _read_quality_summaries(lake: Lake, since: datetime.datetime | None) -> Mapping[str, _QualitySummary]:
    """Return a summary of the quality results of each run since a time, by run id.

    The default is a day before the newest result.
    """
    try:
        table = lake.table("quality_results")
    except NoTableError:
        return {}
    since = since or _day_before_newest(table)
    where = "" if since is None else f" WHERE judged_at >= {timestamp_literal(since)}"
    # The row of the verdict sums up the others, and is not an expectation itself.
    unmet = "NOT success AND NOT (suite = 'run' AND expectation = 'verdict')"
    sql = (
        f"SELECT run_id, max(judged_at) AS judged_at, sum(CASE WHEN {unmet} THEN 1 ELSE 0 END) AS unmet, "
        f"sum(CASE WHEN {unmet} AND severity = 'critical' THEN 1 ELSE 0 END) AS critical "
        f"FROM quality_results{where} GROUP BY run_id"
    )
    rows = rows_to_dicts(run_sql(table, "quality_results", sql).read_all())
    return {row["run_id"]: _QualitySummary(row["judged_at"], row["unmet"], row["critical"]) for row in rows}


def _day_before_newest(table: DeltaTable) -> datetime.datetime | None:
    """Return the time one day before the newest row of `quality_results`; None if it is not known."""
    newest = _largest_value(table, "judged_at")
    return None if newest is None else newest - _DAY


def _to_past_run(row: Mapping[str, Any], quality: _QualitySummary | None) -> PastRun:
    begun, ended = row["started_at"], row["finished_at"]
    # A recovered run was begun by one process and finished by another, so its length says nothing.
    has_length = begun is not None and not row["recovered"]
    return PastRun(
        row["run_id"],
        ended,
        row["sequence"],
        (ended - begun).total_seconds() if has_length else None,
        row["stores"] or 0,
        row["messages"] or 0,
        row["bytes"] or 0,
        row["quarantined"] or 0,
        row["gaps"] or 0,
        None if quality is None else quality.unmet,
        is_recovered=bool(row["recovered"]),
    )
