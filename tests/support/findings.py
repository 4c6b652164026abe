"""What verify says of a damaged store."""

from __future__ import annotations

from collections.abc import Mapping

from commitlake.pipelines.verify.classes import CLASSES
from commitlake.pipelines.verify.findings import Findings


def check_findings(findings: Findings, expected: Mapping[str, int]) -> None:
    """See that these findings of the store `a` were counted, no others, and that each says all that it should."""
    assert findings.counts == expected
    for finding in findings:
        assert finding.place, finding
        assert finding.found, finding
        assert finding.expected, finding
        assert finding.kind is CLASSES[finding.code]
        assert finding.broker == "a"
