"""Reports on profiles, and their figures."""

from __future__ import annotations

import pyarrow as pa

from commitlake.pipelines.quality.page_figures import RunPageSummary
from commitlake.pipelines.quality.report import Judgement, QualityReport
from commitlake.schemas.quality.expectation import Expectation
from commitlake.schemas.quality.suites import SUITES
from tests.support.profiles import NOON, Row


def report_of(*failing: tuple[str, Row]) -> QualityReport:
    """Return a report in which these expectations are not met, each with an example."""
    failures = dict(failing)
    judgements = [
        Judgement(
            suite.name, each, each.name not in failures, 3, 10, int(each.name in failures), _examples(failures, each)
        )
        for suite in SUITES
        for each in suite.expectations
    ]
    return QualityReport(judgements, NOON)


def _examples(failures: dict[str, Row], each: Expectation) -> tuple[Row, ...]:
    return (failures[each.name],) if each.name in failures else ()


def figures_of(*stretches: pa.Table, most: int = 30) -> RunPageSummary:
    """Return the figures of a profile that arrives in parts."""
    figures = RunPageSummary(most)
    for stretch in stretches:
        figures.add_windows(stretch)
    return figures
