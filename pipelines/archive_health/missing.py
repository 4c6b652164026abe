"""Missing parts of the brokers' logs, by store and reason, and expectations that the last run did not meet."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.connectors.lake.lake import Lake
from commitlake.pipelines.archive_health.small_tables import Row, ask
from commitlake.schemas.quality.former_names import present_name

DELETED = "deleted before it was archived"
"""Reason of the ranges in `gaps`."""
_QUARANTINE = (
    "SELECT broker, reason, count(*) AS ranges, sum(end_offset - start_offset) AS bytes, min(start_offset) AS first "
    "FROM quarantine GROUP BY broker, reason"
)
_GAPS = (
    "SELECT broker, count(*) AS ranges, sum(end_offset - start_offset) AS bytes, min(start_offset) AS first "
    "FROM gaps GROUP BY broker"
)
_UNMET = (
    "SELECT suite, expectation, severity, observed_value, unexpected_count, judged_count, judged_at "
    "FROM quality_results WHERE NOT success AND suite <> 'run' AND run_id = "
    "(SELECT run_id FROM quality_results ORDER BY judged_at DESC LIMIT 1) ORDER BY severity, suite, expectation"
)


@dataclass(frozen=True, slots=True)
class Missing:
    """Ranges of a store's log that are not archived, all for the same reason.

    Attributes:
        broker: The store's name.
        reason: Value in `quarantine`, or `DELETED`.
        ranges: Number of ranges.
        bytes: Total length.
        first: Physical offset of the first one.
    """

    broker: str
    reason: str
    ranges: int
    bytes: int
    first: int


def missing_by_reason(lake: Lake) -> list[Missing]:
    """Return the ranges that are not archived, by store and reason, the largest first.

    Raises:
        LakeError: There is no lake.
        QueryError: A table cannot be read.
    """
    rows = [
        *ask(lake, "quarantine", _QUARANTINE),
        *(dict(row, reason=DELETED) for row in ask(lake, "gaps", _GAPS)),
    ]
    found = [Missing(row["broker"], row["reason"], row["ranges"], row["bytes"], row["first"]) for row in rows]
    return sorted(found, key=lambda one: (-one.bytes, one.broker, one.reason))


def unmet_expectations(lake: Lake) -> list[Row]:
    """Return the rows of `quality_results` for expectations that the last run did not meet, critical ones first.

    Expectations that were renamed since the run have their present names.

    Raises:
        LakeError: There is no lake.
        QueryError: The table cannot be read.
    """
    rows = ask(lake, "quality_results", _UNMET)
    return [{**row, "expectation": present_name(row["expectation"])} for row in rows]
