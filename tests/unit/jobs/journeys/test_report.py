"""The page of journeys."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from commitlake.jobs.journeys.journey_results import MisfitKeys, Row
from commitlake.jobs.journeys.report import MAX_HOPS, journeys_report
from commitlake.jobs.report.html_page import render_page
from commitlake.pipelines.journeys.misfits import MisfitRules
from commitlake.schemas.report import Kind, Report

PATHS = (
    {"path": ["orders", "payments"], "keys": 99, "dead": 0, "open": 2, "share_percent": 99.0},
    {"path": ["orders"], "keys": 1, "dead": 1, "open": 0, "share_percent": 1.0},
)
HOP = {"source": "orders", "target": "payments", "hops": 99, "p50_ms": 40_000, "p95_ms": 50_000, "p99_ms": 60_000}
KEY: dict[str, Any] = {
    "key": "o<7", "reasons": ["missing payments"], "path": ["orders"], "outcome": "dead",
    "last_sent_at": "2026-11-20T14:00:00.000Z", "due_at": None, "messages": 1, "retries": 2,
}  # fmt: skip
NOW = datetime.datetime(2026, 11, 20, tzinfo=datetime.UTC)
ALL_FIT = MisfitRules(NOW)
LACKS = MisfitRules(NOW, missing=("payments",))


@dataclass(frozen=True)
class FixedAnswer:
    """Answer of `journeys` with given figures."""

    key_counts: Mapping[str, int] = field(default_factory=lambda: {"keys": 100, "began_before": 3})
    all_paths: Sequence[Row] = PATHS
    path_count: int = 2
    all_hops: Sequence[Row] = (HOP,)
    misfits: Sequence[Row] = ()
    misfit_count: int = 0

    def paths(self, limit: int | None) -> Sequence[Row]:
        """Return the first paths."""
        return self.all_paths[:limit]

    def hops(self) -> Sequence[Row]:
        """Return all hops."""
        return self.all_hops

    def find_misfit_keys(self, criteria: MisfitRules, limit: int | None) -> MisfitKeys:
        """Return the given keys."""
        assert criteria.has_conditions
        return MisfitKeys(self.misfits[:limit], self.misfit_count)

    def first_keys_of_paths(
        self, paths: Sequence[Sequence[str]], limit: int
    ) -> Mapping[tuple[str, ...], Sequence[str]]:
        """Return keys of two paths."""
        keys = {("orders", "payments"): ["o1", "o 2"], ("orders",): ["o<7"]}
        return {tuple(path): keys.get(tuple(path), [])[:limit] for path in paths}


def make_report(rules: MisfitRules = ALL_FIT, missing: Sequence[str] = (), **figures: Any) -> Report:
    """Return the report on an answer with the given figures."""
    return journeys_report(FixedAnswer(**figures), rules, ["the time", "3 more keys began before"], missing, "lake")


def test_bands_lead_to_keys_of_their_path() -> None:
    html = render_page(make_report())
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
        ({"rules": LACKS, "misfits": [KEY], "misfit_count": 1}, Kind.WARNING, "1 of 100 keys does not fit"),
        ({"rules": LACKS}, Kind.GOOD, "All of 100 keys fit"),
        (
            {"rules": MisfitRules(NOW, through=("a", "b")), "misfits": [KEY], "misfit_count": 1},
            Kind.INFO,
            "1 of 100 keys passes through a and b",
        ),
        ({"missing": ["gone"]}, Kind.CRITICAL, "The lake has lost messages of the time; 100 keys began in it"),
    ],
)
def test_the_verdict_says_what_does_not_fit(changes: dict[str, Any], kind: Kind, sentence: str) -> None:
    assert make_report(**changes).verdict[:2] == (kind, sentence)


def test_keys_that_do_not_fit_are_first() -> None:
    report = make_report(LACKS, misfits=[KEY], misfit_count=1_001)
    assert [section.anchor for section in report.sections] == ["keys", "paths", "hops"]
    html = render_page(report)
    assert "missing payments" in html
    assert "1,000 more keys are left out of this page" in html


def test_paths_that_are_not_drawn_are_counted() -> None:
    many = [{**PATHS[1], "path": [f"t{number}"]} for number in range(30)]
    html = render_page(make_report(all_paths=many, path_count=31))
    assert html.count('href="#path-') == 20
    assert "80 keys on 11 more paths are not drawn" in html


def test_a_time_without_keys_has_a_page() -> None:
    html = render_page(make_report(key_counts={"keys": 0, "began_before": 0}, all_paths=[], path_count=0, all_hops=[]))
    assert "No key began in the time." in html
    assert "No key went from one topic to another." in html


def test_hops_that_are_not_shown_are_counted() -> None:
    html = render_page(make_report(all_hops=[{**HOP, "source": f"t{number}"} for number in range(MAX_HOPS + 7)]))
    assert "7 rarer hops are left out of this page" in html
