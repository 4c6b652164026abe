"""Lag of consumer groups as Arrow tables: the figures of `commitlake lag`, at one time or at many."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.snapshot_tables import OFFSETS
from commitlake.connectors.lake.sql import in_condition, text_literal
from commitlake.pipelines.analysis.lag_question import LagHistoryQuestion, LagQuestion
from commitlake.pipelines.lag.answer import lag_of_lake
from commitlake.pipelines.lag.groups import GROUP_KINDS, GroupSummary
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.queue_rows import figures_of, queue_row

Row = Mapping[str, Any]


def lag_table(lake: Lake, question: LagQuestion) -> pa.Table:
    """Return the lag of a lake's groups, at one time or at the end of each window.

    Raises:
        NoTableError: if the lake has no `consumer_offsets`.
        LakeError: if there is no lake, or no permission.
    """
    lake = lake.pinned()  # all windows are of one version of each table
    offsets = lake.table(OFFSETS)
    times: Sequence[datetime.datetime | None] = [question.at]
    if isinstance(question, LagHistoryQuestion):
        first, last = _first_and_last_snapshot(offsets, question.selection.brokers)
        times = [end for end in question.window_ends(last).times() if first is not None and first <= end]
    rows: list[Row] = []
    for at in times:
        answer = lag_of_lake(lake, at, question.selection)
        lags = [row for row in answer.rows if row.kind in GROUP_KINDS]
        rows += map(queue_row, lags) if question.by == "queue" else _sum_by_group(lags)
    return pa.Table.from_pylist(rows, arrow_schema(question.columns))


def _first_and_last_snapshot(
    offsets: DeltaTable, brokers: Sequence[str]
) -> tuple[datetime.datetime | None, datetime.datetime | None]:
    """Return the times of the first and the last snapshot of some stores, or of all for none; None without any."""
    chosen = in_condition("broker", map(text_literal, brokers)) if brokers else "true"
    where = f"kind = 'group' AND topic IS NULL AND {chosen}"
    sql = f"SELECT min(as_of) AS first, max(as_of) AS last FROM {OFFSETS} WHERE {where}"
    (found,) = run_sql(offsets, OFFSETS, sql).read_all().to_pylist()
    return found["first"], found["last"]


def _sum_by_group(rows: Iterable[Lag]) -> Iterable[Row]:
    """Yield a row for each group, summed over its queues."""
    of_groups: dict[str, list[Lag]] = defaultdict(list)
    for row in rows:
        of_groups[row.group].append(row)
    for group, queues in of_groups.items():
        found = GroupSummary(group, queues)
        times = [row.next_time for row in queues if row.next_time is not None]
        yield {
            "group": group,
            "as_of": min(row.as_of for row in queues),
            "queues": len(queues),
            "queues_behind": sum(row.messages.high is None or row.messages.high > 0 for row in queues),
            **figures_of(found.messages, found.bytes, found.longest_wait_seconds),
            "next_message_time": min(times, default=None),
        }
