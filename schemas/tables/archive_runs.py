"""`archive_runs`: one row per finished archive run.

Key: `sequence`. If a run has committed its messages but has no row, it was stopped before it updated the other tables.
The next run completes it and writes its row, with `recovered`.
"""

from __future__ import annotations

from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType, TimestampType

ARCHIVE_RUNS = StructType(
    [
        StructField("sequence", LongType(), True, {"comment": "number of the archive commit in messages"}),
        StructField(
            "run_id", StringType(), True, {"comment": "random; distinguishes two attempts with the same number"}
        ),
        StructField("started_at", TimestampType(), True, {"comment": "UTC"}),
        StructField("finished_at", TimestampType(), True, {"comment": "UTC"}),
        StructField("stores", LongType(), True, {"comment": "stores with new log in this run"}),
        StructField("messages", LongType(), True, {"comment": "rows added to messages"}),
        StructField("bytes", LongType(), True, {"comment": "log bytes from the first to the last offset read"}),
        StructField("quarantined", LongType(), True, {"comment": "rows added to quarantine"}),
        StructField("gaps", LongType(), True, {"comment": "rows added to gaps"}),
        StructField("recovered", BooleanType(), True, {"comment": "true if a later run finished this one"}),
        StructField("parser_version", StringType(), True, {"comment": "version of CommitLake that read the log"}),
    ]
)
