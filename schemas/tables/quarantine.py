"""`quarantine`: one row per damaged range of a log, or per record with a value that does not fit in its column.

Key: (`broker`, `start_offset`, `reason`, `run_id`). Append-only. Later runs do not read a damaged range again, so these
rows are the only record of it.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

QUARANTINE = StructType(
    [
        StructField("broker", StringType(), True, {"comment": "the store's name"}),
        StructField("segment", StringType(), True, {"comment": "file, as it was read"}),
        StructField("start_offset", LongType(), True, {"comment": "physical offset of the first bad byte"}),
        StructField("end_offset", LongType(), True, {"comment": "physical offset after the last bad byte"}),
        StructField("reason", StringType(), True, {"comment": "see commitlake.schemas.layouts.rocketmq.scan.Fault"}),
        StructField("expected", StringType(), True, {"comment": "value expected by the format"}),
        StructField("found", StringType(), True, {"comment": "value found"}),
        StructField("first_bytes", BinaryType(), True, {"comment": "up to 256 bytes from the start of the range"}),
        StructField("parser_version", StringType(), True, {"comment": "version of CommitLake that read it"}),
        StructField("run_id", StringType(), True, {"comment": "the archive run, as in archive_runs"}),
    ]
)
