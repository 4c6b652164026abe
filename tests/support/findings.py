"""Checks of verify's findings for a damaged store."""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.pipelines.verify.finding_classes import CLASSES
from commitlake.pipelines.verify.findings import Findings


def check_findings(findings: Findings, expected: Mapping[str, int]) -> None:
    """Check that exactly these findings of the store `a` were reported, with all their details."""
    assert findings.counts == expected
    for finding in findings:
        assert finding.place_text, finding
        assert finding.found, finding
        assert finding.expected, finding
        assert finding.finding_class is CLASSES[finding.code]
        assert finding.broker == "a"
