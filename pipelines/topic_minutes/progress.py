"""Progress of `topic_minutes`: the runs it has counted. Queries use this module without a schema or the compiler."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable

from commitlake.connectors.lake.delta_log.file_actions import one_value_per_file, read_file_actions
from commitlake.connectors.lake.follower_progress import last_finished_sequence, read_sequence_number
from commitlake.connectors.lake.lake import Lake
from commitlake.connectors.lake.reader import run_sql
from commitlake.schemas.layouts.integer_parsing import parse_int64

APPLICATION_ID = "commitlake.topic_minutes"
BACKFILLED = "backfill-"
"""Prefix of the `run_id` of rows added by a backfill; the newest archive commit that it covers follows."""
JOINED = "joined-"
"""Prefix of the `run_id` of rows joined from several runs. The sequence of the newest archive commit follows up to
which the table had counted all messages."""


def covered_sequence(lake: Lake) -> int:
    """Return the sequence of the newest archive commit that is included in backfilled or merged rows; 0 for none.

    Raises:
        NoTableError: if there is no table.
    """
    return _newest_covered_sequence(lake.table("topic_minutes"))


def _newest_covered_sequence(topic_minutes: DeltaTable) -> int:
    numbers = (
        parse_int64(run_id.removeprefix(prefix))
        for run_id in _ids_of_runs_with_rows(topic_minutes, "topic_minutes")
        for prefix in (BACKFILLED, JOINED)
        if run_id.startswith(prefix)
    )
    return max((number or 0 for number in numbers), default=0)


def _ids_of_runs_with_rows(table: DeltaTable, name: str) -> set[str]:
    """Return the ids of the runs that have rows in a table, from its Delta log where possible."""
    told = one_value_per_file(read_file_actions(table), "run_id")
    if told is not None:
        return set(told.to_pylist())
    answer = run_sql(table, name, f"SELECT DISTINCT run_id FROM {name} WHERE run_id IS NOT NULL").read_all()
    return set(answer.column(0).to_pylist())


def joined_run_id(lake: Lake) -> str | None:
    """Return the `run_id` for rows merged from several runs; None if a run's counts are missing, which forbids merging.

    Without `archive_runs` it is not known which runs the table has counted.

    Raises:
        NoTableError: if `topic_minutes` is missing.
    """
    last = last_finished_sequence(lake, "topic_minutes")
    tables = _open_tables(lake)
    if "archive_runs" not in tables:
        return None
    lacking = count_runs_without_rows(tables, "topic_minutes", _newest_covered_sequence(tables["topic_minutes"]), last)
    return f"{JOINED}{last}" if last and not lacking else None


def count_runs_without_rows(
    tables: Mapping[str, DeltaTable], table: str, after_sequence: int, last_sequence: int
) -> int:
    """Count the archive runs in a range of sequences that archived messages but have no rows in a table.

    Args:
        tables: `archive_runs` and the table, by name.
        table: name of the table.
        after_sequence: only runs after this sequence number are counted.
        last_sequence: only runs up to this sequence number are counted.
    """
    answer = run_sql(
        tables["archive_runs"],
        "archive_runs",
        f"SELECT run_id FROM archive_runs WHERE messages > 0 AND sequence > {after_sequence} AND sequence <= "
        f"{last_sequence}",
    )
    runs = answer.read_all().column(0).to_pylist()
    if not runs:
        return 0
    there = _ids_of_runs_with_rows(tables[table], table)
    return sum(run_id not in there for run_id in runs)


def count_uncounted_runs(lake: Lake) -> int:
    """Count the finished archive runs with messages that `topic_minutes` does not count.

    A lake whose first run is not finished has no `archive_runs`, and no finished run.

    Raises:
        NoTableError: if `topic_minutes` is missing.
    """
    tables = _open_tables(lake)
    if "archive_runs" not in tables:
        return 0
    last = read_sequence_number(tables["archive_runs"])
    return count_runs_without_rows(tables, "topic_minutes", _newest_covered_sequence(tables["topic_minutes"]), last)


def _open_tables(lake: Lake) -> dict[str, DeltaTable]:
    """Open `topic_minutes`, and `archive_runs` if the lake has it."""
    # The order matters: a run with a row in archive_runs has its minutes by then.
    runs = lake.find("archive_runs")
    return {**({} if runs is None else {"archive_runs": runs}), "topic_minutes": lake.table("topic_minutes")}
