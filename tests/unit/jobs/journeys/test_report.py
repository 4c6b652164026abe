"""The page of journeys."""

from __future__ import annotations

from typing import Any

import pytest

from commitlake.jobs.journeys.command import HOP_COLUMNS, KEY_COLUMNS
from commitlake.jobs.journeys.report import MAX_HOPS, JourneysPage, journeys_report
from commitlake.jobs.report.html_page import render_page
from commitlake.schemas.report import Kind

PATHS = [
    {"path": ["orders", "payments"], "keys": 99, "dead": 0, "open": 2, "share_percent": 99.0},
    {"path": ["orders"], "keys": 1, "dead": 1, "open": 0, "share_percent": 1.0},
]
HOP = {"source": "orders", "target": "payments", "hops": 99, "p50_ms": 40_000, "p95_ms": 50_000, "p99_ms": 60_000}
KEY: dict[str, Any] = {
    "key": "o<7", "reasons": ["missing payments"], "path": ["orders"], "outcome": "dead",
    "last_sent_at": "2026-11-20T14:00:00.000Z", "due_at": None, "messages": 1, "retries": 2,
}  # fmt: skip


def page(**changes: Any) -> JourneysPage:
    """Return the content of a page."""
    known: dict[str, Any] = {
        "facts": [("Lake", "lake")], "counts": {"keys": 100, "began_before": 3}, "paths": PATHS, "path_count": 2,
        "examples": {("orders", "payments"): ["o1", "o 2"], ("orders",): ["o<7"]}, "hops": [HOP],
        "hop_columns": HOP_COLUMNS, "misfits": None, "misfit_count": 0, "key_columns": KEY_COLUMNS,
        "has_reasons": True, "through": (), "notes": ["3 more keys began before"], "missing": [], "lake": "lake",
    }  # fmt: skip
    return JourneysPage(**{**known, **changes})


def test_bands_lead_to_keys_of_their_path() -> None:
    html = render_page(journeys_report(page()))
    for place in (1, 2):
        assert f'href="#path-{place}"' in html
        assert f'id="path-{place}"' in html
    assert "commitlake lineage --lake lake &#x27;--key=o 2&#x27;" in html
    assert "97 more keys take this path." in html
    assert "1 key with an open dead letter" in html
    assert "<bdi>o&lt;7</bdi>" in html
    assert "3 more keys began before" in html
    assert "40 s" in html


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({}, Kind.INFO, "100 keys took 2 paths"),
        ({"misfits": [KEY], "misfit_count": 1}, Kind.WARNING, "1 of 100 keys does not fit"),
        ({"misfits": [], "misfit_count": 0}, Kind.GOOD, "All of 100 keys fit"),
        (
            {"misfits": [KEY], "misfit_count": 1, "has_reasons": False, "through": ("a", "b")},
            Kind.INFO,
            "1 of 100 keys passes through a and b",
        ),
        ({"missing": ["gone"]}, Kind.CRITICAL, "The lake has lost messages of the time; 100 keys began in it"),
    ],
)
def test_the_verdict_says_what_does_not_fit(changes: dict[str, Any], kind: Kind, sentence: str) -> None:
    assert journeys_report(page(**changes)).verdict[:2] == (kind, sentence)


def test_keys_that_do_not_fit_are_first() -> None:
    report = journeys_report(page(misfits=[KEY], misfit_count=1_001))
    assert [section.anchor for section in report.sections] == ["keys", "paths", "hops"]
    html = render_page(report)
    assert "missing payments" in html
    assert "1,000 more keys are left out of this page" in html


def test_paths_that_are_not_drawn_are_counted() -> None:
    many = [{**PATHS[1], "path": [f"t{number}"]} for number in range(30)]
    html = render_page(journeys_report(page(paths=many, path_count=31)))
    assert html.count('href="#path-') == 20
    assert "80 keys on 11 more paths are not drawn" in html


def test_a_time_without_keys_has_a_page() -> None:
    nothing = page(counts={"keys": 0, "began_before": 0}, paths=[], path_count=0, hops=[], examples={})
    html = render_page(journeys_report(nothing))
    assert "No key began in the time." in html
    assert "No key went from one topic to another." in html


def test_hops_that_are_not_shown_are_counted() -> None:
    html = render_page(journeys_report(page(hops=[{**HOP, "source": f"t{number}"} for number in range(MAX_HOPS + 7)])))
    assert "7 rarer hops are left out of this page" in html
