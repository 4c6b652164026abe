"""`quality_results`: one row per expectation and archive run, with its result.

Key: (`run_id`, `suite`, `expectation`). The row `run`, `verdict` is the result of the whole run: `success` is false if
the run's exit code reports damage or loss. A run stopped by a critical failure also has rows here, although it
committed nothing and so has no row in `archive_runs`.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, BooleanType, LongType, StringType, StructField, StructType, TimestampType

QUALITY_RESULTS = StructType(
    [
        StructField("run_id", StringType(), True, {"comment": "the archive run, as in archive_runs"}),
        StructField("suite", StringType(), True, {"comment": "see commitlake.schemas.quality"}),
        StructField("expectation", StringType(), True, {"comment": "name of the expectation in the suite"}),
        StructField("severity", StringType(), True, {"comment": "critical (stops the commit), damage or warning"}),
        StructField("success", BooleanType(), True, {"comment": "whether the expectation was met"}),
        StructField("observed_value", StringType(), True, {"comment": "observed value as JSON; null if there is none"}),
        StructField("judged_count", LongType(), True, {"comment": "rows of the profile that were checked"}),
        StructField(
            "unexpected_count", LongType(), True, {"comment": "rows of the profile that violate the expectation"}
        ),
        StructField(
            "examples",
            ArrayType(StringType(), containsNull=False),
            True,
            {"comment": "the first of those rows, of damage one for each queue: their keys and values as JSON"},
        ),
        StructField("judged_at", TimestampType(), True, {"comment": "UTC"}),
    ]
)
