"""The verdict on stores: one object for the summary, the page and the exit code."""

from __future__ import annotations

from dataclasses import dataclass

from commitlake.pipelines.verify.classes import Severity
from commitlake.pipelines.verify.findings import Findings


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out.

    Attributes:
        text: in a sentence.
        kind: its colour on the page: `good`, or the worst severity.
        is_damage: whether something is wrong, and not only worth knowing.
    """

    text: str
    kind: str
    is_damage: bool


def verdict_of(findings: Findings, stores: int) -> Verdict:
    """Return the verdict on the findings of all stores."""
    of = "1 store" if stores == 1 else f"{stores} stores"
    worst = findings.worst
    if worst is None:
        return Verdict(f"{of}: sound, nothing found", "good", False)
    counts = ", ".join(f"{findings.count(severity):,} {severity}" for severity in Severity if findings.count(severity))
    is_damage = any(findings.count(severity) for severity in Severity if severity is not Severity.INFO)
    return Verdict(f"{of}: {'not sound' if is_damage else 'sound'}, {counts}", str(worst), is_damage)
