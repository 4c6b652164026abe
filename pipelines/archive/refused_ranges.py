"""Ranges that an archive run could not read, for reports: rows of `quarantine` and `gaps` by reason, with samples.

A run may have a million such rows. They are counted by reason, and only the first rows of each reason are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from commitlake.connectors.lake.lake import Lake, NoTableError
from commitlake.connectors.lake.reader import run_sql
from commitlake.connectors.lake.sql import text_literal

SHOWN = 3
"""Number of rows of a group that are read."""
_QUARANTINE = "quarantine"
_GAPS = "gaps"
_MAX_REASONS = 64  # there are thirteen, but a damaged table may have any


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """Rows of one run with the same reason.

    Attributes:
        table: `quarantine` or `gaps`.
        reason: Value of the column in `quarantine`; empty for `gaps`.
        count: Number of rows.
        bytes: Total size of the ranges.
        first: The first rows of the table, by broker and offset.
    """

    table: str
    reason: str
    count: int
    bytes: int
    first: Sequence[Mapping[str, Any]]


def read_refused(lake: Lake, run_ids: Sequence[str]) -> list[RefusalGroup]:
    """Return the ranges that a run could not read, in groups, the largest first.

    Args:
        run_ids: Ids of the commits of a finished run.
    """
    return [
        *_groups(lake, _QUARANTINE, run_ids, "reason"),
        *_groups(lake, _GAPS, run_ids, "''"),
    ]


def _groups(lake: Lake, table: str, run_ids: Sequence[str], reason: str) -> list[RefusalGroup]:
    try:
        opened = lake.table(table)
    except NoTableError:
        return []
    of_run = f"run_id IN ({', '.join(map(text_literal, run_ids))})"
    counted = run_sql(
        opened,
        table,
        f"SELECT {reason} AS reason, count(*) AS count, sum(end_offset - start_offset) AS bytes FROM {table} "
        f"WHERE {of_run} GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {_MAX_REASONS}",
    ).read_all()
    found = []
    for row in counted.to_pylist():
        of_reason = "" if table == _GAPS else f" AND {_is(row['reason'])}"
        first = run_sql(
            opened,
            table,
            f"SELECT * FROM {table} WHERE {of_run}{of_reason} ORDER BY broker, start_offset LIMIT {SHOWN}",
        ).read_all()
        found.append(RefusalGroup(table, row["reason"] or "", row["count"], row["bytes"] or 0, first.to_pylist()))
    return found


def _is(reason: str | None) -> str:
    return "reason IS NULL" if reason is None else f"reason = {text_literal(reason)}"
