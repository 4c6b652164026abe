"""Time ranges that the lake covers, by broker: from the first archived message to the last, without gaps.

A time that is not archived differs from a time without messages. The first and the last minute of a broker may be
archived in part, and so may the minutes around a gap.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts, to_numpy_numbers
from commitlake.connectors.lake.delta_log.file_actions import (
    column_bounds_per_file,
    one_value_per_file,
    read_file_actions,
)
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import plausible_time_condition, text_literal, timestamp_literal
from commitlake.pipelines.tps.rates_query import MINUTE, MINUTES, CountedTable
from commitlake.pipelines.tps.result_rows import to_row_dicts, to_utc_times
from commitlake.schemas.times import EPOCH, FIRST_USUAL_TIME, epoch_us, latest_plausible_time

_MICROSECOND = datetime.timedelta(microseconds=1)
_LAST = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)
"""Last minute that counts; only other programs write later ones, or ones before 1970."""
ALL, PART, NONE = "all", "part", "none"
"""Share of a window that is archived."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time range; `end` is exclusive."""

    start: datetime.datetime
    end: datetime.datetime


@dataclass(frozen=True, slots=True)
class Coverage:
    """Time ranges for which the lake has messages, by broker.

    Attributes:
        spans: by broker, the range from its first to its last archived minute. Times before 2010 and after tomorrow,
            which only wrong clocks have, do not extend it, unless a broker has no others.
        gaps: by broker, time ranges in which part of the log is missing.
    """

    spans: Mapping[str, TimeSpan]
    gaps: Mapping[str, Sequence[TimeSpan]] = field(default_factory=dict)

    @property
    def whole_span(self) -> TimeSpan | None:
        """Range from the first minute of any broker to the last one; None if nothing is archived."""
        if not self.spans:
            return None
        spans = self.spans.values()
        return TimeSpan(min(span.start for span in spans), max(span.end for span in spans))

    def share_of_window(self, start: datetime.datetime, end: datetime.datetime) -> str:
        """Return how much of a time window is archived: `all`, `part` or `none`."""
        states = {self._share_of_broker(broker, start, end) for broker in self.spans}
        if states == {ALL}:
            return ALL
        return NONE if states <= {NONE} else PART

    def lacks_part_of_range(self, start: datetime.datetime, end: datetime.datetime) -> bool:
        """Return True if any broker's messages are not archived for some part of a time range.

        In contrast to `share_of_window`, the first and the last archived minute count as archived.
        """
        if any(start < span.start or end > span.end for span in self.spans.values()):
            return True
        gaps = (gap for gaps in self.gaps.values() for gap in gaps)
        return any(gap.start < end and start < gap.end for gap in gaps)

    def _share_of_broker(self, broker: str, start: datetime.datetime, end: datetime.datetime) -> str:
        span = self.spans[broker]
        if end <= span.start or start >= span.end:
            return NONE
        # The first and the last minute may be archived in part.
        is_whole = span.start + MINUTE <= start and end <= span.end - MINUTE
        gaps = [gap for gap in self.gaps.get(broker, ()) if gap.start < end and start < gap.end]
        if any(gap.start + MINUTE <= start and end <= gap.end - MINUTE for gap in gaps):
            return NONE
        return ALL if is_whole and not gaps else PART


def read_coverage(lake: Lake, brokers: Collection[str] = ()) -> Coverage:
    """Return the time ranges for which the lake has messages, by broker.

    Args:
        brokers: brokers to read; all if empty.

    Raises:
        NoTableError: if the lake has no `topic_minutes`.
    """
    table = lake.table("topic_minutes")
    spans = {
        broker: TimeSpan(first, last + MINUTE)
        for broker, first, last in _first_and_last_minutes(table)
        if not brokers or broker in brokers
    }
    return Coverage(spans, _time_ranges(lake, "gaps", spans))


def _first_and_last_minutes(table: DeltaTable) -> Iterator[tuple[str, datetime.datetime, datetime.datetime]]:
    """Yield each broker with its first and last minute in `topic_minutes`, from file statistics if possible."""
    actions = read_file_actions(table)
    brokers = one_value_per_file(actions, "broker")
    least, greatest = column_bounds_per_file(actions, MINUTES.time, pa.timestamp("us", "UTC"))
    if brokers is None or least.null_count or not _are_plausible_times(least, greatest):
        for row in to_row_dicts(run_sql(table, MINUTES.name, first_and_last_time_sql(MINUTES))):
            yield row["broker"], row["first"], row["last"]
        return
    # Importing Arrow's group_by takes longer than everything else.
    names = np.array(brokers.to_pylist(), object)
    firsts, lasts = to_numpy_numbers(least), to_numpy_numbers(greatest)
    for broker in sorted(set(names)):
        here = names == broker
        yield broker, EPOCH + int(firsts[here].min()) * _MICROSECOND, EPOCH + int(lasts[here].max()) * _MICROSECOND


def first_and_last_time_sql(table: CountedTable) -> str:
    """Return SQL for the first and last time of each broker: columns `broker`, `first` and `last`."""
    is_usual = plausible_time_condition(table.time)
    first, last = (
        f"coalesce({name}(CASE WHEN {is_usual} THEN {table.time} END), {name}({table.time}))" for name in ("min", "max")
    )
    is_time = f"{table.time} BETWEEN {timestamp_literal(EPOCH)} AND {timestamp_literal(_LAST)}"
    return (
        f"SELECT broker, {first} AS first, {last} AS last FROM {table.name} "
        f"WHERE {is_time} AND broker IS NOT NULL GROUP BY broker"
    )


def _are_plausible_times(least: pa.ChunkedArray, greatest: pa.ChunkedArray) -> bool:
    first, last = epoch_us(FIRST_USUAL_TIME), epoch_us(latest_plausible_time())
    return bool((to_numpy_numbers(least) >= first).all() and (to_numpy_numbers(greatest) <= last).all())


def read_damaged_time_ranges(lake: Lake, coverage: Coverage) -> Mapping[str, Sequence[TimeSpan]]:
    """Return, by broker, the time ranges in which a part of the log could not be read."""
    return _time_ranges(lake, "quarantine", coverage.spans)


def _time_ranges(lake: Lake, table: str, spans: Mapping[str, TimeSpan]) -> dict[str, Sequence[TimeSpan]]:
    """Return, by broker, the time ranges in which the log ranges listed in a table were stored."""
    stretches = _log_ranges(lake, table, spans)
    return {broker: _times_of_log_ranges(lake, broker, spans[broker], found) for broker, found in stretches.items()}


def _log_ranges(lake: Lake, table_name: str, brokers: Collection[str]) -> dict[str, list[tuple[int, int]]]:
    """Return the brokers' log ranges that a table lists; none if the lake lacks the table."""
    table = lake.find(table_name)
    if table is None:
        return {}
    sql = f"SELECT DISTINCT broker, start_offset, end_offset FROM {table_name} WHERE end_offset > start_offset"
    found: dict[str, list[tuple[int, int]]] = {}
    for row in rows_to_dicts(run_sql(table, table_name, sql).read_all()):
        if row["broker"] in brokers:
            found.setdefault(row["broker"], []).append((row["start_offset"], row["end_offset"]))
    return found


def _times_of_log_ranges(
    lake: Lake, broker: str, span: TimeSpan, log_ranges: Sequence[tuple[int, int]]
) -> list[TimeSpan]:
    """Return, for each log range, the time from the last minute before it to the first minute after it."""
    answer = run_sql(
        lake.table("topic_minutes"),
        "topic_minutes",
        "SELECT minute, min(first_physical_offset) AS first, max(last_physical_offset) AS last FROM topic_minutes "
        f"WHERE broker = {text_literal(broker)} AND {plausible_time_condition('minute')} GROUP BY minute ORDER BY "
        "minute",
    ).read_all()
    minutes = to_utc_times(answer.column("minute"))
    firsts, lasts = answer.column("first").to_numpy(), answer.column("last").to_numpy()
    found = []
    for start, end in sorted(log_ranges):
        before, after = np.flatnonzero(firsts < start), np.flatnonzero(lasts >= end)
        first = minutes[before[-1]] if len(before) else span.start
        last = minutes[after[0]] + MINUTE if len(after) else span.end
        found.append(TimeSpan(first, max(first, last)))
    return found
