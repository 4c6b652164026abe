"""Lag of consumer groups as Arrow tables: the figures of `commitlake lag`, at one time or at many.

A history reads the table `lag_minutes` where it has the minutes, and measures the lag at all other times.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake, PinnedLake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS, snapshot_brokers
from commitlake.connectors.lake.sql import in_condition, text_literal
from commitlake.pipelines.analysis.lag_arguments import LagHistoryQuestion, LagQuestion
from commitlake.pipelines.lag.group_summaries import GROUP_KINDS
from commitlake.pipelines.lag.queue_lag_rows import queue_lag_row
from commitlake.pipelines.lag.store_lag import lag_of_lake
from commitlake.pipelines.lag_minutes.coverage import CoveredMinutes, find_covered_minutes
from commitlake.pipelines.lag_minutes.minute_computation import first_minute_at, last_minute_at
from commitlake.pipelines.lag_minutes.minute_reader import lag_at_minutes
from commitlake.schemas.layouts.rocketmq.topics import strip_broadcast_suffix
from commitlake.schemas.selection import Selection
from commitlake.schemas.tables.lag import GROUP_LAG, QUEUE_LAG

_QUEUES = arrow_schema(QUEUE_LAG)
_SUMMED = ("messages_min", "messages_max", "bytes_min", "bytes_max")
_LONGEST = ("time_lag_s_min", "time_lag_s_max")
_OF_GROUPS = ("group", "as_of", *_SUMMED, *_LONGEST, "next_message_time")
"""Columns of queues from which those of groups are computed."""


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """Times and stores of a lag history, and the minutes that `lag_minutes` has of each store.

    Attributes:
        brokers: the stores.
        times: ends of the windows, from the first snapshot on.
        covered: the minutes, by store; without stores of which it has none.
    """

    brokers: Sequence[str]
    times: Sequence[datetime.datetime]
    covered: Mapping[str, CoveredMinutes]


def lag_table(lake: Lake, question: LagQuestion) -> pa.Table:
    """Return the lag of the consumer groups of a lake, at one time or at the end of each time window.

    Raises:
        NoTableError: if the lake has no `consumer_offsets`.
        LakeError: if there is no lake, or no permission.
    """
    lake = lake.pin_versions()  # all windows are of one version of each table
    lake.table(OFFSETS)
    schema = _QUEUES if question.by == "queue" else pa.schema([_QUEUES.field(name) for name in _OF_GROUPS])
    if isinstance(question, LagHistoryQuestion):
        tables = list(_history_rows(lake, question, schema.names))
    else:
        tables = [_measure_lag_rows(lake, question.at, question.selection, schema.names)]
    rows = pa.concat_tables([schema.empty_table(), *tables])
    if question.by == "queue":
        return rows
    return _sum_lag_by_group(rows, ["as_of"] if isinstance(question, LagHistoryQuestion) else [])


def plan_lag_history(lake: PinnedLake, question: LagHistoryQuestion) -> HistoryPlan:
    """Return the times and stores of a history, and which of them `lag_minutes` covers.

    Raises:
        NoTableError: if the lake has no `consumer_offsets`.
        LakeError: if there is no lake, or no permission.
    """
    offsets, wanted = lake.table(OFFSETS), question.selection
    first, last = _first_and_last_snapshot(offsets, wanted.brokers)
    times = [end for end in question.window_ends(last).times() if first is not None and first <= end]
    brokers = list(wanted.brokers) or snapshot_brokers(offsets, OFFSETS)
    covered = find_covered_minutes(lake, brokers) if _may_have_minute_rows(times, wanted) else {}
    return HistoryPlan(brokers, times, covered)


def _history_rows(lake: PinnedLake, question: LagHistoryQuestion, column_names: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the lag of each group and queue at the end of each time window, with the given columns."""
    plan, wanted = plan_lag_history(lake, question), question.selection
    stored = {
        broker: [time for time in plan.times if _is_covered_minute(minutes, time)]
        for broker, minutes in plan.covered.items()
    }
    stored_names = ["minute" if name == "as_of" else name for name in column_names]
    for broker, known in stored.items():
        of_broker = replace(wanted, brokers=[broker])
        minutes = list(map(last_minute_at, known))
        for rows in lag_at_minutes(lake.table("lag_minutes"), minutes, of_broker, stored_names):
            yield rows.rename_columns(column_names)
    left: dict[datetime.datetime, list[str]] = defaultdict(list)
    for broker in plan.brokers:
        for time in sorted({*plan.times} - {*stored.get(broker, ())}):
            left[time].append(broker)
    for time, others in left.items():
        yield _measure_lag_rows(lake, time, replace(wanted, brokers=others), column_names)


def _may_have_minute_rows(times: Sequence[datetime.datetime], selection: Selection) -> bool:
    """Return whether `lag_minutes` can hold the lag: a time is a full minute, and no group name has a suffix.

    The table names groups without the suffix for broadcasting.
    """
    return any(_is_minute(time) for time in times) and all(
        strip_broadcast_suffix(group) == group for group in selection.groups
    )


def _is_minute(time: datetime.datetime) -> bool:
    return first_minute_at(time) == last_minute_at(time)


def _is_covered_minute(covered_minutes: CoveredMinutes, time: datetime.datetime) -> bool:
    return _is_minute(time) and covered_minutes.contains_minute(last_minute_at(time))


def _measure_lag_rows(
    lake: PinnedLake, as_of: datetime.datetime | None, selection: Selection, column_names: Sequence[str]
) -> pa.Table:
    """Compute the lag of each group and queue at one time, with the given columns."""
    answer = lag_of_lake(lake, as_of, selection)
    rows = [queue_lag_row(row) for row in answer.rows if row.kind in GROUP_KINDS]
    return pa.Table.from_pylist(rows, pa.schema([_QUEUES.field(name) for name in column_names]))


def _first_and_last_snapshot(
    offsets: DeltaTable, brokers: Sequence[str]
) -> tuple[datetime.datetime | None, datetime.datetime | None]:
    """Return the times of the first and last offset snapshot of the given stores, or of all stores.

    Both are None if there is no snapshot.
    """
    chosen = in_condition("broker", map(text_literal, brokers)) if brokers else "true"
    where = f"kind = 'group' AND topic IS NULL AND {chosen}"
    sql = f"SELECT min(as_of) AS first, max(as_of) AS last FROM {OFFSETS} WHERE {where}"
    (found,) = run_sql(offsets, OFFSETS, sql).read_all().to_pylist()
    return found["first"], found["last"]


def _sum_lag_by_group(queue_rows: pa.Table, times: Sequence[str]) -> pa.Table:
    """Sum the lag of queues into one row for each group, or for each group and time.

    An upper bound is null if that of any queue is.

    Args:
        queue_rows: rows with the columns `_OF_GROUPS`.
        times: `as_of` for a row for each time; empty if each store has a time of its own.
    """
    has_messages = pc.fill_null(pc.greater(queue_rows["messages_max"], 0), True)
    queue_rows = queue_rows.append_column("queues_behind", has_messages.cast(pa.int64()))
    strict, known = pc.ScalarAggregateOptions(skip_nulls=False), pc.ScalarAggregateOptions()
    wanted: list[tuple[str, str, pc.FunctionOptions]] = [
        ("as_of", "count", pc.CountOptions("all")),
        ("queues_behind", "sum", known),
        ("next_message_time", "min", known),
    ]
    wanted += [(name, "sum", strict) for name in _SUMMED] + [(name, "max", strict) for name in _LONGEST]
    if not times:
        wanted.append(("as_of", "min", known))
    found = queue_rows.group_by(["group", *times]).aggregate(wanted)
    names = {f"{name}_{function}": name for name, function, _ in wanted} | {"as_of_count": "queues"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    schema = arrow_schema(GROUP_LAG)
    return found.select(schema.names).cast(schema)
