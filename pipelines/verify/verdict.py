"""The verdict on stores, which summary, page and exit code share."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.pipelines.verify.classes import Severity
from commitlake.pipelines.verify.findings import Findings
from commitlake.schemas.counts import count_text


@dataclass(frozen=True, slots=True)
class StoresVerdict:
    """The verdict on all stores of a run.

    Attributes:
        text: one sentence.
        kind: `good`, or the worst severity; selects the colour on the page.
        is_damage: True if a finding is worse than information.
    """

    text: str
    kind: str
    is_damage: bool


def verdict_of(findings: Findings, stores: int) -> StoresVerdict:
    """Return the verdict on the findings of all stores."""
    of = count_text(stores, "store")
    worst = findings.worst
    if worst is None:
        return StoresVerdict(f"{of}: sound, nothing found", "good", False)
    counts = ", ".join(f"{findings.count(severity):,} {severity}" for severity in Severity if findings.count(severity))
    is_damage = any(findings.count(severity) for severity in Severity if severity is not Severity.INFO)
    return StoresVerdict(f"{of}: {'not sound' if is_damage else 'sound'}, {counts}", str(worst), is_damage)
