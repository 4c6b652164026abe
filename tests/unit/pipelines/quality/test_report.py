"""The verdict on a run: its words, its colour and its exit code agree."""

from __future__ import annotations

import datetime

import pytest

from commitlake.pipelines.quality.report import Judgement, Losses, QualityReport, to_quality_results
from commitlake.schemas.quality.expectation import Severity
from commitlake.schemas.quality.suites import SUITES
from tests.support.html_pages import parse_page
from tests.support.profiles import messages, profile_of
from tests.support.reports import figures_of
from tests.support.shown_runs import page_of_run

EXPECTATIONS = {each.severity: (suite.name, each) for suite in SUITES for each in suite.expectations}
NOW = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)


def report_with(*failed: Severity) -> QualityReport:
    """Return a report with a failure of each of these."""
    return QualityReport([Judgement(*EXPECTATIONS[severity], False, 1, 1, 1) for severity in failed], NOW)


@pytest.mark.parametrize(
    ("losses", "failed", "kind", "is_damage"),
    [
        (Losses(), [], "good", False),
        (Losses(), [Severity.WARNING], "warning", False),
        (Losses(), [Severity.CRITICAL], "critical", True),
        (Losses(), [Severity.DAMAGE], "critical", True),
        (Losses(gaps=1, accepts_gaps=True), [Severity.DAMAGE], "critical", True),
        (Losses(gaps=1), [Severity.WARNING], "critical", True),
        (Losses(quarantined=2), [], "critical", True),
        (Losses(gaps=1, accepts_gaps=True), [Severity.WARNING], "warning", False),
        (Losses(quarantined=2, accepts_quarantined=True), [], "warning", False),
        (Losses(quarantined=2, gaps=1, accepts_quarantined=True), [], "critical", True),
    ],
)
def test_page_table_and_exit_code_have_the_same_verdict(
    losses: Losses, failed: list[Severity], kind: str, is_damage: bool
) -> None:
    report = report_with(*failed)
    verdict = losses.verdict(report)
    assert (verdict.kind, verdict.is_damage) == (kind, is_damage)
    page = parse_page(page_of_run(report, figures_of(profile_of(messages([0]))), verdict))
    assert page.all("h1")[0].text == verdict.text[:1].upper() + verdict.text[1:]
    assert [shown.attributes["class"] for shown in page.of_class("verdict")] == [f"verdict {kind}"]
    row = to_quality_results(report, run_id="r", verdict=verdict).to_pylist()[-1]
    assert (row["suite"], row["expectation"], row["success"]) == ("run", "verdict", not is_damage)


@pytest.mark.parametrize(
    ("losses", "failed", "expected"),
    [
        (Losses(), [], "archived, with warnings: 2 problems"),
        (Losses(), [Severity.WARNING], "archived, with warnings: 1 expectation is not met; 2 problems"),
        (Losses(gaps=1, accepts_gaps=True), [], "archived; as accepted, 1 range of the log is missing (table gaps)"),
        (Losses(gaps=1), [], "archived, with damage or loss: 1 range of the log is missing (table gaps); 2 problems"),
    ],
)
def test_unread_files_beside_the_log_are_a_warning(losses: Losses, failed: list[Severity], expected: str) -> None:
    before = losses.verdict(report_with(*failed))
    assert before.with_unread_files(0) == before
    verdict = before.with_unread_files(2)
    assert verdict.text.startswith(expected)
    assert verdict.text.endswith("2 problems with files beside the log")
    assert (verdict.kind, verdict.is_damage) == ("critical" if before.is_damage else "warning", before.is_damage)


@pytest.mark.parametrize("losses", [Losses(), Losses(gaps=3), Losses(gaps=3, accepts_gaps=True)])
def test_a_run_without_a_judgement_also_has_a_verdict(losses: Losses) -> None:
    assert losses.verdict().is_damage == losses.is_damage
