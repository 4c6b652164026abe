"""`quarantine`: one row per damaged range of a log, or per record with a value that does not fit in its column.

Key: (`broker`, `start_offset`, `reason`, `run_id`). Append-only. Later runs do not read a damaged range again, so these
rows are the only record of it.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BINARY, INT64, TEXT, Column, Columns

QUARANTINE = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("segment", TEXT, "file, as it was read"),
        Column("start_offset", INT64, "physical offset of the first bad byte"),
        Column("end_offset", INT64, "physical offset after the last bad byte"),
        Column("reason", TEXT, "see commitlake.schemas.layouts.rocketmq.scan.Fault"),
        Column("expected", TEXT, "value expected by the format"),
        Column("found", TEXT, "value found"),
        Column("first_bytes", BINARY, "up to 256 bytes from the start of the range"),
        Column("parser_version", TEXT, "version of CommitLake that read it"),
        Column("run_id", TEXT, "the archive run, as in archive_runs"),
    ]
)
