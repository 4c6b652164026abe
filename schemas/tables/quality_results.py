"""`quality_results`: one row per expectation and archive run, with its result.

Key: (`run_id`, `suite`, `expectation`). The row `run`, `verdict` is the result of the whole run: `success` is false if
the run's exit code reports damage or loss. A run stopped by a critical failure also has rows here, although it
committed nothing and so has no row in `archive_runs`.
"""

from __future__ import annotations

from commitlake.schemas.tables.columns import BOOLEAN, INT64, TEXT, TIME, Column, Columns, ListOf

QUALITY_RESULTS = Columns(
    [
        Column("run_id", TEXT, "the archive run, as in archive_runs"),
        Column("suite", TEXT, "see commitlake.schemas.quality"),
        Column("expectation", TEXT, "name of the expectation in the suite"),
        Column("severity", TEXT, "critical (stops the commit), damage or warning"),
        Column("success", BOOLEAN, "whether the expectation was met"),
        Column("observed_value", TEXT, "observed value as JSON; null if there is none"),
        Column("judged_count", INT64, "rows of the profile that were checked"),
        Column("unexpected_count", INT64, "rows of the profile that violate the expectation"),
        Column(
            "examples",
            ListOf(TEXT),
            "the first of those rows, of damage one for each queue: their keys and values as JSON",
        ),
        Column("judged_at", TIME, "UTC"),
    ]
)
