"""`gaps`: one row per missing range of a log, whose segment was deleted or never copied.

Key: (`broker`, `start_offset`, `run_id`). Append-only. What was in a gap is in no table; `messages` has nothing between
    the two offsets. A gap that begins where the run before ended was deleted by the broker before it was archived.
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
        StructField("run_id", StringType(), True, {"comment": "the archive run, as in archive_runs"}),
    ]
)
