"""The verdict on the findings of all stores."""

from __future__ import annotations

import pytest

from commitlake.pipelines.verify.finding_classes import CLASSES, Severity
from commitlake.pipelines.verify.findings import Findings, StoresVerdict, make_verdict


def findings(*severities: Severity) -> Findings:
    """Return findings with one of each severity, of any class."""
    found = Findings()
    for severity in severities:
        code = next(kind.code for kind in CLASSES.values() if kind.severity is severity)
        found.add_many(code, 1200, ())
    return found


def test_stores_without_findings_are_sound() -> None:
    assert make_verdict(Findings(), 1) == StoresVerdict("1 store: sound, nothing found", "good", False)


@pytest.mark.parametrize(
    ("severities", "expected"),
    [
        ([Severity.INFO], StoresVerdict("2 stores: sound, 1,200 info", "info", False)),
        ([Severity.REPAIRABLE], StoresVerdict("2 stores: not sound, 1,200 repairable", "repairable", True)),
        (
            [Severity.INFO, Severity.DAMAGE],
            StoresVerdict("2 stores: not sound, 1,200 damage, 1,200 info", "damage", True),
        ),
    ],
)
def test_the_worst_finding_decides(severities: list[Severity], expected: StoresVerdict) -> None:
    assert make_verdict(findings(*severities), 2) == expected
