"""`gaps`: one row per missing range of a log, whose segments were deleted or never copied.

Key: (`broker`, `start_offset`, `run_id`). Append-only. Records in a gap are in no table; `messages` has no rows between
the two offsets. If a gap begins at the end of the previous run, the broker deleted it before it was archived.

Rows with the `run_id` `repair` are of messages that were archived, and lost with a data file of `messages`. There may
be other messages between the two offsets. `maintain --repair --store` deletes such a row once it has read the messages.
"""

from __future__ import annotations

from pyspark.sql.types import LongType, StringType, StructField, StructType

GAPS = StructType(
    [
        StructField("broker", StringType(), True, {"comment": "the store's name"}),
        StructField("segment", StringType(), True, {"comment": "file that should hold the first of the bytes"}),
        StructField("start_offset", LongType(), True, {"comment": "physical offset of the first missing byte"}),
        StructField("end_offset", LongType(), True, {"comment": "physical offset after the last missing byte"}),
        StructField("found", StringType(), True, {"comment": "no such file, or when it disappeared"}),
        StructField(
            "parser_version", StringType(), True, {"comment": "version of CommitLake that looked for the file"}
        ),
        StructField("run_id", StringType(), True, {"comment": "the archive run, as in archive_runs; or 'repair'"}),
    ]
)
