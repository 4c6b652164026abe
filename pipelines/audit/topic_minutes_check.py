"""Compares the counts of `topic_minutes` with those of `profiles`, both of which archive tasks computed.

Counts are compared by broker, topic, queue and window of ten minutes, one day at a time, so that memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from commitlake.connectors.arrays_without_pandas import rows_to_dicts
from commitlake.connectors.lake.erasures import newest_erasure_number
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql_over_tables
from commitlake.connectors.lake.sql import microseconds_literal, window_start_expression
from commitlake.pipelines.audit.audited_versions import LakeState
from commitlake.pipelines.audit.table_checks import TableFinding
from commitlake.pipelines.audit.window_profiles import SHOWN
from commitlake.pipelines.topic_minutes.progress import BACKFILLED, JOINED, count_runs_without_rows, covered_sequence
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.tables.profile import WINDOW_SECONDS

_TABLES = ("topic_minutes", "archive_runs", "profiles")
_COUNTED = ("messages", "bytes", "body_bytes")
_DAY_SECONDS = 86_400


def compare_minutes(lake: Lake, moment: LakeState) -> tuple[list[TableFinding], str]:
    """Compare the message counts in `topic_minutes` with those in `profiles`.

    Returns findings, and a note if the comparison was not possible or not complete.

    Args:
        moment: moment of the lake; later runs are left out.
    """
    if expired := [table for table in _TABLES if table in moment.expired]:
        return [], f"topic_minutes is not compared with profiles: some rows of {expired[0]} have expired"
    # The order matters: a run whose minutes are visible has a profile by then.
    tables = {name: table for name in _TABLES if (table := lake.find(name)) is not None}
    if len(tables) < len(_TABLES):
        return [], ""
    covered = covered_sequence(lake)
    if newest_erasure_number(tables["topic_minutes"]) != newest_erasure_number(tables["profiles"]):
        return (
            [],
            "topic_minutes is not compared with profiles: an erasure is not complete in both ('erase --finish')",
        )
    last = moment.commit.sequence
    if covered > last:
        return (
            [],
            "topic_minutes is not compared with profiles: 'maintain' has merged its rows with later ones meanwhile",
        )
    if covered and count_runs_without_rows(tables, "profiles", 0, min(last, covered)):
        return [], "topic_minutes is not compared with profiles: some runs have no profile of their messages"
    note = ""
    if lacking := count_runs_without_rows(tables, "topic_minutes", covered, last):
        note = (
            f"{format_count(lacking, 'run has', 'runs have')} no rows in topic_minutes: "
            "'commitlake archive --backfill topic_minutes' counts their messages"
        )
    count = 0
    shown: list[str] = []
    for row in _find_different_windows(tables, last, covered):
        count += 1
        if len(shown) < SHOWN:
            shown.append(_difference_sentence(row))
    return ([TableFinding("topic_minutes", count, "windows", shown)] if count else []), note


def _runs_counted_in_both_sql(last_sequence: int, covered_end: int) -> str:
    """Return SQL for the runs whose messages are counted in both `profiles` and `topic_minutes`."""
    both = "run_id IN (SELECT run_id FROM profiles) AND run_id IN (SELECT run_id FROM topic_minutes)"
    runs = f"SELECT run_id FROM archive_runs WHERE sequence <= {last_sequence} AND {both}"
    return f"{runs} UNION SELECT run_id FROM archive_runs WHERE sequence <= {min(last_sequence, covered_end)}"


def _find_different_windows(
    tables: Mapping[str, DeltaTable], last_sequence: int, covered_end: int
) -> Iterator[dict[str, Any]]:
    """Yield the time windows in which `topic_minutes` and `profiles` have different counts, with both counts."""
    runs = _runs_counted_in_both_sql(last_sequence, covered_end)
    window = window_start_expression("minute", WINDOW_SECONDS)
    key = "broker, topic, queue_id, window_start"
    sums = ", ".join(
        f"sum(profiled_{name}) AS expected_{name}, sum(counted_{name}) AS found_{name}" for name in _COUNTED
    )
    differs = " OR ".join(f"sum(profiled_{name}) <> sum(counted_{name})" for name in _COUNTED)
    expected = ", ".join(f"{name} AS profiled_{name}, 0 AS counted_{name}" for name in _COUNTED)
    found = ", ".join(f"0 AS profiled_{name}, {name} AS counted_{name}" for name in _COUNTED)
    of_no_run = f"(starts_with(run_id, '{BACKFILLED}') OR starts_with(run_id, '{JOINED}'))"
    for day in _day_starts(tables):
        minutes = f"SELECT broker, topic, queue_id, {window} AS window_start, {found} FROM topic_minutes"
        answer = run_sql_over_tables(
            tables,
            f"SELECT {key}, {sums} FROM ("
            f"SELECT {key}, {expected} FROM profiles "
            f"WHERE {_day_condition('window_start', day)} AND run_id IN ({runs}) "
            f"UNION ALL {minutes} WHERE {_day_condition('minute', day)} AND run_id IN ({runs}) "
            f"UNION ALL {minutes} WHERE {_day_condition('minute', day)} AND {of_no_run}"
            f") GROUP BY {key} HAVING {differs} ORDER BY {key}",
        )
        yield from rows_to_dicts(answer.read_all())


def _day_starts(tables: Mapping[str, DeltaTable]) -> list[int | None]:
    """Return the start of each day with rows in `profiles` or `topic_minutes`, in microseconds.

    None stands for rows without a time.
    """
    days: set[int | None] = set()
    for table, column in (("profiles", "window_start"), ("topic_minutes", "minute")):
        answer = run_sql_over_tables(
            tables, f"SELECT DISTINCT {window_start_expression(column, _DAY_SECONDS)} FROM {table}"
        ).read_all()
        days.update(answer.column(0).cast(pa.int64()).to_pylist())
    return sorted(days, key=lambda day: (day is not None, day))


def _day_condition(column: str, day: int | None) -> str:
    if day is None:
        return f"{column} IS NULL"
    start, end = microseconds_literal(day), microseconds_literal(day + _DAY_SECONDS * 1_000_000)
    return f"{column} >= {start} AND {column} < {end}"


def _difference_sentence(row: Mapping[str, Any]) -> str:
    start = "no time" if row["window_start"] is None else f"{row['window_start']:%Y-%m-%dT%H:%M}Z"
    different = [name for name in _COUNTED if row[f"expected_{name}"] != row[f"found_{name}"]]
    counts = ", ".join(f"expected {row[f'expected_{name}']} {name}, found {row[f'found_{name}']}" for name in different)
    return f"{row['broker']} {row['topic']} queue {row['queue_id']}, {start}: {counts}"
