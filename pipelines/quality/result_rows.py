"""Results of expectations and the verdict on an archive run, as rows of `quality_results`."""

from __future__ import annotations

import json

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.pipelines.quality.report import QualityReport
from commitlake.pipelines.quality.verdict import RunVerdict
from commitlake.schemas.tables.quality_results import QUALITY_RESULTS


def to_table(report: QualityReport, *, run_id: str, verdict: RunVerdict | None = None) -> pa.Table:
    """Return a report as rows of `quality_results`.

    Args:
        report: results of the run.
        run_id: id of the archive run.
        verdict: verdict on the run, which is added as a row.
    """
    rows = [
        {
            "run_id": run_id,
            "suite": found.suite,
            "expectation": found.expectation.name,
            "severity": str(found.expectation.severity),
            "success": found.success,
            "observed_value": None if found.observed is None else json.dumps(found.observed),
            "judged_count": found.judged,
            "unexpected_count": found.unexpected,
            "examples": [json.dumps(example, default=str, ensure_ascii=False) for example in found.examples],
            "judged_at": report.judged_at,
        }
        for found in report.judgements
    ]
    if verdict is not None:
        rows.append(
            {
                "run_id": run_id,
                "suite": "run",
                "expectation": "verdict",
                "severity": "critical" if verdict.is_damage else "warning",
                "success": not verdict.is_damage,
                "observed_value": json.dumps(verdict.text),
                "judged_count": 1,
                "unexpected_count": int(verdict.is_damage),
                "examples": [],
                "judged_at": report.judged_at,
            }
        )
    return pa.Table.from_pylist(rows, schema=arrow_schema(QUALITY_RESULTS))
