"""Which messages `topic_minutes` has counted; for questions, too: needs neither a schema nor the compiler."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable

from commitlake.connectors.lake.delta import delta_table
from commitlake.connectors.lake.followed_runs import last_finished
from commitlake.connectors.lake.paths import LakePaths
from commitlake.connectors.lake.reader import run_sql, run_sql_over
from commitlake.schemas.layouts.numbers import parse_int64

APPLICATION_ID = "commitlake.topic_minutes"
BACKFILLED = "backfill-"
"""Begins the `run_id` of rows that a backfill added; the newest archive commit that it covers follows."""


def backfilled_sequence(lake: LakePaths) -> int:
    """Return the newest archive commit that a backfill covers; 0 where the table has no rows of one.

    Raises:
        TableNotFoundError: where there is no table.
    """
    table = delta_table(lake.topic_minutes, lake.s3)
    if table.transaction_version(APPLICATION_ID) is None:
        return 0
    sql = f"SELECT DISTINCT run_id FROM topic_minutes WHERE starts_with(run_id, '{BACKFILLED}')"
    found = run_sql(table, "topic_minutes", sql).read_all().column(0).to_pylist()
    return max((parse_int64(run_id.removeprefix(BACKFILLED)) or 0 for run_id in found), default=0)


def count_runs_without_rows(tables: Mapping[str, DeltaTable], table: str, after: int, last: int) -> int:
    """Count the archive runs that took messages and have no rows in a table.

    Args:
        tables: `archive_runs` and the table, by name.
        table: its name.
        after: runs up to this sequence number are left out.
        last: and those after this one.
    """
    answer = run_sql_over(
        tables,
        f"SELECT count(*) FROM archive_runs WHERE messages > 0 AND sequence > {after} AND sequence <= {last} "
        f"AND run_id NOT IN (SELECT run_id FROM {table} WHERE run_id IS NOT NULL)",
    )
    return int(answer.read_all().column(0)[0].as_py())


def count_uncounted_runs(lake: LakePaths) -> int:
    """Count the finished archive runs that took messages and are not in `topic_minutes`.

    Raises:
        TableNotFoundError: where one of the tables is not there.
    """
    # In this order: a run that has a row in archive_runs has its minutes by then.
    tables = {table: delta_table(getattr(lake, table), lake.s3) for table in ("archive_runs", "topic_minutes")}
    last = last_finished(lake.archive_runs)
    return count_runs_without_rows(tables, "topic_minutes", backfilled_sequence(lake), last)
