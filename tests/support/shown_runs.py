"""Pages of archive runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from commitlake.connectors.lake.lake import Lake
from commitlake.jobs.archive.page import make_archive_run_page
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.archive.run_page import ShownRun
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
    run = ShownRun(Lake("/nowhere/lake"), "r", verdict, report=report, figures=figures, earlier=earlier)
    page = make_archive_run_page(run)
    return render_page(replace(page, job=""))  # the time differs between runs
