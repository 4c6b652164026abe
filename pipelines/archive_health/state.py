"""State of a lake's stores: the newest archived minute, and the parts of their logs that are missing.

The queries are on small tables, which a lake may lack.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.archive_commits import read_last_commit
from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import plausible_time_condition

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LogRangeTotals:
    """Number and total size of ranges of a log.

    Attributes:
        count: Number of ranges.
        bytes: Total length.
    """

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoreState:
    """Archived end of one store's log, and its damaged and missing ranges.

    Attributes:
        broker: The store's name.
        end: Physical offset up to which its log is archived.
        newest: End of the newest minute that has a message, without minutes before 2010 and after tomorrow, which only
            wrong clocks have; None if `topic_minutes` has none.
        quarantined: Ranges that could not be read.
        gaps: Ranges that were deleted before they were archived.
    """

    broker: str
    end: int
    newest: datetime.datetime | None = None
    quarantined: LogRangeTotals = LogRangeTotals()
    gaps: LogRangeTotals = LogRangeTotals()

    @property
    def is_intact(self) -> bool:
        """True if no range of the log was found damaged or missing."""
        return not self.quarantined.count and not self.gaps.count


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """State of a lake's archive: its stores, and the time of the last run.

    Attributes:
        stores: Its stores, by name.
        last_run: End of the newest finished run that found something new; None if there is none.
    """

    stores: Sequence[StoreState]
    last_run: datetime.datetime | None = None


def read_archive_state(lake: Lake) -> ArchiveState:
    """Return how far each store of a lake is archived, and when the last run ended."""
    lake.table("messages")
    last = read_last_commit(lake)
    newest = {
        row["broker"]: row["newest"] + datetime.timedelta(minutes=1)
        for row in query_table(
            lake,
            "topic_minutes",
            f"SELECT broker, max(minute) AS newest FROM topic_minutes WHERE {plausible_time_condition('minute')} "
            "GROUP BY broker",
        )
    }
    quarantined, gaps = _sum_ranges_by_broker(lake, "quarantine"), _sum_ranges_by_broker(lake, "gaps")
    stores = [
        StoreState(
            broker,
            progress.end,
            newest.get(broker),
            quarantined.get(broker, LogRangeTotals()),
            gaps.get(broker, LogRangeTotals()),
        )
        for broker, progress in sorted(({} if last is None else last.stores).items())
    ]
    ended = query_table(lake, "archive_runs", "SELECT max(finished_at) AS ended FROM archive_runs")
    return ArchiveState(stores, ended[0]["ended"] if ended else None)


def _sum_ranges_by_broker(lake: Lake, table: str) -> Mapping[str, LogRangeTotals]:
    sql = f"SELECT broker, count(*) AS count, sum(end_offset - start_offset) AS bytes FROM {table} GROUP BY broker"
    return {row["broker"]: LogRangeTotals(row["count"], row["bytes"] or 0) for row in query_table(lake, table, sql)}


def query_table(lake: Lake, table: str, sql: str) -> list[Row]:
    """Return the rows of an SQL query on a table; none if the table does not exist."""
    try:
        opened = lake.table(table)
    except NoTableError:
        return []
    rows: list[Row] = list(rows_to_dicts(run_sql(opened, table, sql).read_all()))
    return rows
