"""Rows of the lakes of two archive runs, to compare them, and the number of rows that a run has added."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from commitlake.pipelines.archive.result import Result

TABLES = ("messages", "message_keys", "topic_minutes", "consumer_offsets", "store_config", "consumptions", "edges")
OWN_COLUMNS = ("run_id", "sequence", "body_ref", "archived_at", "as_of", "recorded_at")


def rows_of(lake: Path, table: str) -> list[dict[str, object]]:
    """Return the sorted rows of a table without columns that differ from run to run; none if there is no table."""
    if not (lake / table).exists():
        return []
    rows = DeltaTable(str(lake / table)).to_pyarrow_table().to_pylist()
    kept = [{name: value for name, value in row.items() if name not in OWN_COLUMNS} for row in rows]
    return sorted(kept, key=str)


def rows_added(result: Result, table: str) -> int:
    """Return the number of rows that a run has added to a table that follows `messages`."""
    return sum(update.rows for update in result.updates if update.table == table)
