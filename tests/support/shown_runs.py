"""Pages of archive runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive.report import archive_report
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.archive.result import Result
from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.quality.report import Losses, QualityReport, RunVerdict


def page_of_run(
    report: QualityReport,
    figures: RunPageSummary,
    verdict: RunVerdict | None = None,
    earlier: Sequence[tuple[int, str]] = (),
) -> str:
    """Return the page of a run whose expectations were checked, for a lake that does not exist."""
    verdict = verdict or Losses().verdict(report)
    run = Result(Lake("/nowhere/lake"), "r", {}, verdict=verdict, report=report, figures=figures, earlier=earlier)
    if report.has_passed:
        run = replace(run, sequence=1, seconds=1.0)
    return render_page(replace(archive_report(run), job=""))  # the time differs between runs
