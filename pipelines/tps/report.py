"""Contents of a report on rates: totals, the largest groups over time, percentiles, and times without figures.

Its size is bounded for any lake: the largest groups have rows, all others are summed.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import Engine
from commitlake.pipelines.tps.comparison import Comparison
from commitlake.pipelines.tps.coverage import NONE, Coverage, TimeSpan, read_damaged_time_ranges
from commitlake.pipelines.tps.rates import Rates
from commitlake.pipelines.tps.rates_query import MINUTES, SUMS, RatesQuestion, round_time
from commitlake.schemas.times import TimeWindows

MAX_WINDOWS = 144
"""Largest number of windows if the report chooses their length."""
MAX_GIVEN_WINDOWS = 500
"""Largest number of windows of a given length."""
MAX_GROUPS = 200
"""Largest number of groups with a row."""
MAX_LINES = 50
"""Largest number of groups with figures over time."""
MAX_SKETCHES = 200_000
"""Largest number of rows of `topic_minutes` whose sketches are merged for percentiles over time."""
Row = dict[str, Any]
Key = tuple[str | int | None, ...]


@dataclass(frozen=True)
class RatesReport:
    """Contents of a report on message rates.

    Attributes:
        question: The question.
        coverage: Time ranges that the lake covers.
        windows: Windows of the figures over time.
        total: Row of all messages; None if there are none.
        groups: Rows of the largest groups, the largest first.
        group_count: Number of groups.
        rest: Sums of the groups without a row.
        all_windows: One row for each window, of all messages, with percentiles if `has_percentiles`.
        lines: By group, one row for each window, for the largest groups.
        has_percentiles: True if percentiles are known.
        sketches: Number of rows of `topic_minutes` with sketches; more than `MAX_SKETCHES` are not merged.
        damage: By broker, time ranges in which a part of the log could not be read.
        active_count: Number of groups with messages; the others have messages only at an earlier time.
        is_compared: True if the groups are compared with those of an earlier time.
    """

    question: RatesQuestion
    coverage: Coverage
    windows: TimeWindows
    total: Row | None
    groups: Sequence[Row]
    group_count: int
    rest: Mapping[str, int]
    all_windows: Sequence[Row]
    lines: Mapping[Key, Sequence[Row]]
    has_percentiles: bool
    sketches: int
    damage: Mapping[str, Sequence[TimeSpan]]
    active_count: int
    is_compared: bool

    def group_key_of_row(self, row: Mapping[str, Any]) -> Key:
        """Return the values of the group columns in a row."""
        return tuple(row[name] for name in self.question.by)


def make_report(
    lake: Lake,
    coverage: Coverage,
    question: RatesQuestion,
    engine: Engine = Engine.DELTALAKE,
    comparison_distance: datetime.timedelta | None = None,
) -> RatesReport:
    """Compute the contents of a report on message rates.

    Args:
        question: The question; its window is that of the figures over time, unless there are too many.
        comparison_distance: Distance to an earlier time with which the groups are compared.

    Raises:
        LakeError: There are too many groups.
    """
    rates = Rates(lake, coverage, engine)
    is_by_second = question.counted_table is not MINUTES
    whole = replace(question, window=None, step=None, is_by_second=is_by_second)
    windows = _report_windows(question)
    by_window = replace(whole, start=windows.start, end=windows.end, window=windows.length)
    groups = (
        rates.read_rates(whole)
        if comparison_distance is None
        else Comparison(rates, whole, comparison_distance).comparison_rows()
    )
    shown = groups[:MAX_GROUPS]
    total = rates.read_rates(replace(whole, by=())) if groups else []
    sketches = _count_sketches(lake, by_window)
    has_percentiles = 0 < sketches <= MAX_SKETCHES
    largest = [tuple(row[name] for name in question.by) for row in groups[:MAX_LINES]]
    lines: dict[Key, list[Row]] = {key: [] for key in largest}
    if question.by:
        for row in rates.read_rates(replace(by_window, only=largest)):
            lines[tuple(row[name] for name in question.by)].append(row)
    return RatesReport(
        question=whole,
        coverage=coverage,
        windows=windows,
        total=total[0] if total else None,
        groups=shown,
        group_count=len(groups),
        rest={name: sum(row[name] or 0 for row in groups[MAX_GROUPS:]) for name in SUMS},
        all_windows=_read_report_windows(rates, replace(by_window, by=()), windows, has_percentiles=has_percentiles),
        lines={key: rows for key, rows in lines.items() if rows},
        has_percentiles=has_percentiles,
        sketches=sketches,
        damage=read_damaged_time_ranges(lake, coverage),
        active_count=sum(1 for row in groups if row["messages"]),
        is_compared=comparison_distance is not None,
    )


def _report_windows(question: RatesQuestion) -> TimeWindows:
    if question.window is not None:
        start, end = (
            round_time(question.start, question.window),
            round_time(question.end, question.window, rounds_up=True),
        )
        count = (end - start) // question.window
        if count <= MAX_GIVEN_WINDOWS:
            return TimeWindows(start, question.window, count)
    return TimeWindows.covering(question.start, question.end, MAX_WINDOWS, datetime.timedelta(minutes=1))


def _read_report_windows(
    rates: Rates, question: RatesQuestion, windows: TimeWindows, *, has_percentiles: bool
) -> Sequence[Row]:
    """Return one row for each time window, including windows without messages."""
    found = {row["window_start"]: row for row in rates.read_rates(question, has_quantiles=has_percentiles)}
    rows = []
    for start in windows.starts():
        archived = rates.coverage.share_of_window(start, start + windows.length)
        nothing = None if archived == NONE else 0
        empty = {"messages": nothing, "messages_per_s": nothing, "bytes_per_s": nothing, "archived": archived}
        rows.append(found.get(start, empty))
    return rows


def _count_sketches(lake: Lake, question: RatesQuestion) -> int:
    """Return the number of rows of `topic_minutes` with sketches; 0 if the query reads another table."""
    if question.counted_table is not MINUTES:
        return 0
    table = question.counted_table.name
    sql = f"SELECT count(*) AS count FROM {table} WHERE {question.where_sql()}"
    count: int = rows_to_dicts(run_sql(lake.table(table), table, sql).read_all())[0]["count"]
    return count
