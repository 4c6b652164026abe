"""Tests of the text about the health of an archive."""

from __future__ import annotations

import datetime

from commitlake.jobs.archive.health import health_report
from commitlake.jobs.report.text import block_lines
from commitlake.pipelines.archive.past_runs import PastRun
from commitlake.pipelines.archive_health.state import ArchiveState, RangeTotals, StoreState
from commitlake.schemas.report import Kind, Table

NOW = datetime.datetime(2026, 11, 20, 12, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)
NOTHING = {"suite": "s", "observed_value": None, "unexpected_count": None, "judged_count": None}


def test_a_late_archive_with_damage_is_described() -> None:
    stores = [StoreState("a", 10), StoreState("b", 20, quarantined=RangeTotals(1, 2048), gaps=RangeTotals(3, 100))]
    unmet = [
        {"severity": "critical", "expectation": "no_message_is_missing", **NOTHING},
        {"severity": "warning", "expectation": "no_dead_letters", **NOTHING},
    ]
    report = health_report(ArchiveState(stores, NOW - 30 * HOUR), [], unmet, [], NOW, 24 * HOUR)
    missing, not_met = block_lines(report.section("lacks").blocks)
    assert report.verdict.kind is Kind.WARNING
    assert report.verdict.sentence == (
        "The archive is late, as it is older than 1 d: the last run that found new messages ended "
        "2026-11-19 06:00:00 UTC, 1.2 d ago."
    )
    assert missing == (
        "b: 1 range of its log could not be read (2.0 KiB), and 3 ranges of it were deleted before they were archived "
        "(100 B)."
    )
    assert not_met == (
        "The last run did not meet 2 expectations, 1 of them critical; the first is 'no message is missing'."
    )


def test_an_archive_without_a_run_is_described() -> None:
    report = health_report(ArchiveState([]), [], [], [], NOW, HOUR)
    assert report.verdict.sentence == "No archive run has found a message yet."
    assert list(block_lines(report.section("lacks").blocks)) == []


def test_runs_are_described() -> None:
    runs = [
        PastRun("a", NOW, 1, 3600, 1, 1203, 2048, gaps=1, unmet=2),
        PastRun("b", NOW, 2, None, is_recovered=True),
        PastRun("c", NOW, is_stopped=True),
    ]
    table, *charts = health_report(ArchiveState([]), [], [], runs, NOW).section("runs").blocks
    assert isinstance(table, Table)
    titles = [str(column) for column in table.columns]
    finished, recovered, stopped = (dict(zip(titles, map(str, row), strict=True)) for row in table.rows)
    assert [finished[name] for name in ("took", "messages", "log", "not met")] == ["1 h", "1,203", "2.0 KiB", "2"]
    assert (finished["state"], recovered["state"]) == ("finished", "finished by a later run")
    assert (recovered["took"], stopped["state"]) == ("", "stopped by a critical expectation")
    assert len(charts) == 2
