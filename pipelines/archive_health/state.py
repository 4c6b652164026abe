"""State of a lake's stores: the newest archived minute, and the size of log that was never archived."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commitlake.connectors.lake.archive_log import read_last_commit
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.sql import is_usual_time
from commitlake.pipelines.archive_health.small_tables import ask


@dataclass(frozen=True, slots=True)
class Ranges:
    """Number and size of ranges of a log.

    Attributes:
        count: Number of ranges.
        bytes: Total length.
    """

    count: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoreState:
    """State of one store in the lake.

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
    quarantined: Ranges = Ranges()
    gaps: Ranges = Ranges()

    @property
    def is_whole(self) -> bool:
        """True if nothing of the log is missing."""
        return not self.quarantined.count and not self.gaps.count


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """State of a lake.

    Attributes:
        stores: Its stores, by name.
        last_run: End of the newest finished run that found something new; None if there is none.
    """

    stores: Sequence[StoreState]
    last_run: datetime.datetime | None = None

    def age(self, now: datetime.datetime) -> datetime.timedelta | None:
        """Return the time since the end of the last run; None if there is none."""
        return None if self.last_run is None else max(now - self.last_run, datetime.timedelta())


def read_archive_state(lake: Lake) -> ArchiveState:
    """Return the state of a lake.

    Raises:
        LakeError: There is no lake.
        QueryError: A table cannot be read.
    """
    lake.table("messages")
    last = read_last_commit(lake.uri("messages"))
    newest = {
        row["broker"]: row["newest"] + datetime.timedelta(minutes=1)
        for row in ask(
            lake,
            "topic_minutes",
            f"SELECT broker, max(minute) AS newest FROM topic_minutes WHERE {is_usual_time('minute')} GROUP BY broker",
        )
    }
    quarantined, gaps = _ranges(lake, "quarantine"), _ranges(lake, "gaps")
    stores = [
        StoreState(
            broker, progress.end, newest.get(broker), quarantined.get(broker, Ranges()), gaps.get(broker, Ranges())
        )
        for broker, progress in sorted(({} if last is None else last.stores).items())
    ]
    ended = ask(lake, "archive_runs", "SELECT max(finished_at) AS ended FROM archive_runs")
    return ArchiveState(stores, ended[0]["ended"] if ended else None)


def _ranges(lake: Lake, table: str) -> Mapping[str, Ranges]:
    sql = f"SELECT broker, count(*) AS count, sum(end_offset - start_offset) AS bytes FROM {table} GROUP BY broker"
    return {row["broker"]: Ranges(row["count"], row["bytes"] or 0) for row in ask(lake, table, sql)}
