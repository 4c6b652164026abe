"""Ranges of brokers' logs whose messages were in the lake, but were lost with a damaged or missing data file.

A repair that cannot read such messages from a store again adds a row to `gaps` with the run id `repair`, which
remains until a later repair has them. Until then, each answer that the messages could change names the range.

This module needs no schema, because look-ups, which must start quickly, import it.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.delta_log.file_actions import column_bounds_per_file, read_file_actions
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal, timestamp_literal
from commitlake.schemas.times import EPOCH, format_iso_time

REPAIR = "repair"
"""`run_id` of these rows of `gaps`."""
_SEVERAL = " to "
"""Between the first and the last broker of a row that an earlier version wrote for several brokers."""
_MINUTE = datetime.timedelta(minutes=1)
_LAST = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
"""Last minute that counts; only other programs write later ones."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class LostRange:
    """A range of one broker's log whose messages the lake has lost.

    Attributes:
        broker: the store's name.
        start: physical offset of the first byte; None if unknown.
        end: physical offset after the last byte; None if unknown.
        first: earliest time at which its messages may have been stored; None if unknown.
        last: end of the last minute in which its messages may have been stored; None if unknown.
    """

    broker: str
    start: int | None = None
    end: int | None = None
    first: datetime.datetime | None = None
    last: datetime.datetime | None = None

    def __str__(self) -> str:
        start, end = ("?" if offset is None else str(offset) for offset in (self.start, self.end))
        times = "at an unknown time"
        if self.first is not None and self.last is not None:
            times = f"from {format_iso_time(self.first)} to {format_iso_time(self.last)}"
        return (
            f"{self.broker}: a data file of the lake is lost, and with it messages between physical offsets {start} "
            f"and {end}, stored {times}. They are missing here until 'commitlake maintain --repair --store' reads them "
            "from a store that still has them"
        )

    def belongs_to(self, brokers: Collection[str]) -> bool:
        """Return whether the range belongs to one of the given brokers; True if none are given."""
        return not brokers or self.broker in brokers or _SEVERAL in self.broker

    def contains_offset(self, physical_offset: int) -> bool:
        """Return whether the range contains a physical offset."""
        return (self.start or 0) <= physical_offset and (self.end is None or physical_offset < self.end)

    def overlaps(self, start: int | None, end: int | None) -> bool:
        """Return whether the range overlaps another range of physical offsets; None stands for no bound."""
        is_before = self.end is not None and start is not None and self.end <= start
        return not is_before and (end is None or (self.start or 0) < end)

    def may_overlap_time(self, start: datetime.datetime | None, end: datetime.datetime | None) -> bool:
        """Return whether a lost message may have been stored in a time range; None stands for no bound."""
        is_before = self.last is not None and start is not None and self.last <= start
        is_after = self.first is not None and end is not None and self.first >= end
        return not is_before and not is_after


def lost_ranges(
    lake: Lake,
    brokers: Collection[str] = (),
    start: datetime.datetime | None = None,
    end: datetime.datetime | None = None,
) -> list[LostRange]:
    """Return the lost ranges that may contain messages of the given brokers and time range.

    Args:
        brokers: the brokers; all if empty.
        start: first time at which the messages were stored; None for no bound.
        end: end of these times; None for no bound.
    """
    found = [part for part in _read_lost_ranges(lake) if part.belongs_to(brokers)]
    return [timed for part in found if (timed := _add_time_bounds(lake, part)).may_overlap_time(start, end)]


def describe_lost_ranges(lost_ranges: Collection[LostRange]) -> list[str]:
    """Return a sentence for each lost range; if there are many, only for the first ones."""
    more = len(lost_ranges) - _SHOWN
    return [
        *map(str, list(lost_ranges)[:_SHOWN]),
        *([f"{more:,} more ranges are lost, see the table gaps"] if more > 0 else ()),
    ]


def _read_lost_ranges(lake: Lake) -> Iterator[LostRange]:
    table = lake.find("gaps")
    if table is None:
        return
    if not _may_have_repair_rows(table):
        return
    sql = (
        "SELECT DISTINCT broker, start_offset, end_offset FROM gaps "
        f"WHERE run_id = {text_literal(REPAIR)} ORDER BY broker, start_offset"
    )
    for row in rows_to_dicts(run_sql(table, "gaps", sql).read_all()):
        yield LostRange(row["broker"] or "?", row["start_offset"], row["end_offset"])


def _may_have_repair_rows(table: DeltaTable) -> bool:
    """Return whether the table may have rows that a repair of the lake added, according to its statistics."""
    least, greatest = column_bounds_per_file(read_file_actions(table), "run_id", pa.string())
    bounds = zip(least.to_pylist(), greatest.to_pylist(), strict=True)
    return any(first is None or last is None or first <= REPAIR <= last for first, last in bounds)


def _add_time_bounds(lake: Lake, lost_range: LostRange) -> LostRange:
    """Add time bounds to a lost range, from rows of `topic_minutes`, which still count the lost messages."""
    table = lake.find("topic_minutes")
    if table is None:
        return lost_range
    is_time = f"minute BETWEEN {timestamp_literal(EPOCH)} AND {timestamp_literal(_LAST)}"
    conditions = [f"broker = {text_literal(lost_range.broker)}", is_time]
    if lost_range.start is not None:
        conditions.append(f"last_physical_offset >= {lost_range.start}")
    if lost_range.end is not None:
        conditions.append(f"first_physical_offset < {lost_range.end}")
    sql = f"SELECT min(minute) AS first, max(minute) AS last FROM topic_minutes WHERE {' AND '.join(conditions)}"
    (row,) = rows_to_dicts(run_sql(table, "topic_minutes", sql).read_all())
    if row["first"] is None:
        return lost_range
    return LostRange(lost_range.broker, lost_range.start, lost_range.end, row["first"], row["last"] + _MINUTE)
