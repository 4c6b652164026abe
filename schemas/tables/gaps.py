"""`gaps`: one row per missing range of a log, whose segments were deleted or never copied.

Key: (`broker`, `start_offset`, `run_id`). Append-only. Records in a gap are in no table; `messages` has no rows between
the two offsets. If a gap begins at the end of the previous run, the broker deleted it before it was archived.

Rows with the `run_id` `repair` are of messages that were archived, and lost with a data file of `messages`. There may
be other messages between the two offsets. `maintain --repair --store` deletes such a row once it has read the messages.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import INT64, TEXT, Column, Columns

GAPS = Columns(
    [
        Column("broker", TEXT, "the store's name"),
        Column("segment", TEXT, "file that should hold the first of the bytes"),
        Column("start_offset", INT64, "physical offset of the first missing byte"),
        Column("end_offset", INT64, "physical offset after the last missing byte"),
        Column("found", TEXT, "no such file, or when it disappeared"),
        Column("parser_version", TEXT, "version of CommitLake that looked for the file"),
        Column("run_id", TEXT, "the archive run, as in archive_runs; or 'repair'"),
    ]
)
