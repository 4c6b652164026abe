"""`archive_runs`: one row per finished archive run.

Key: `sequence`. If a run has committed its messages but has no row, it was stopped before it updated the other tables.
The next run completes it and writes its row, with `recovered`.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BOOLEAN, INT64, TEXT, TIME, Column, Columns

ARCHIVE_RUNS = Columns(
    [
        Column("sequence", INT64, "number of the archive commit in messages"),
        Column("run_id", TEXT, "random; distinguishes two attempts with the same number"),
        Column("started_at", TIME, "UTC"),
        Column("finished_at", TIME, "UTC"),
        Column("stores", INT64, "stores with new log in this run"),
        Column("messages", INT64, "rows added to messages"),
        Column("bytes", INT64, "log bytes from the first to the last offset read"),
        Column("quarantined", INT64, "rows added to quarantine"),
        Column("gaps", INT64, "rows added to gaps"),
        Column("recovered", BOOLEAN, "true if a later run finished this one"),
        Column("parser_version", TEXT, "version of CommitLake that read the log"),
    ]
)
