"""The verdict on an archive run, which page, summary, `quality_results` and exit code share."""

from __future__ import annotations

from dataclasses import dataclass, replace

from commitlake.pipelines.quality.report import QualityReport


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on a run.

    Attributes:
        text: in a sentence.
        kind: `good`, `warning` or `critical`: its colour on a page.
        is_damage: whether the exit code says that something is damaged or lost.
    """

    text: str
    kind: str = "good"
    is_damage: bool = False

    def without(self, follower: str) -> RunVerdict:
        """Return the verdict on the same run where what follows the lake could not be written.

        Args:
            follower: its name.
        """
        text = f"{self.text}; {follower} does not have it yet, the next run tries again"
        return replace(self, text=text, kind="warning" if self.kind == "good" else self.kind)


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of a run: damaged ranges, gaps, and messages that were left out.

    Attributes:
        quarantined: ranges and records in `quarantine`.
        gaps: ranges in `gaps`.
        accepts_quarantined: whether the user has said that the former are no damage.
        accepts_gaps: likewise of the latter.
    """

    quarantined: int = 0
    gaps: int = 0
    accepts_quarantined: bool = False
    accepts_gaps: bool = False

    @property
    def is_damage(self) -> bool:
        """True if messages were lost that the user did not accept to lose."""
        return bool((self.quarantined and not self.accepts_quarantined) or (self.gaps and not self.accepts_gaps))

    def verdict(self, report: QualityReport | None = None) -> RunVerdict:
        """Return the verdict on the run.

        Args:
            report: the suites' judgement; None where they were not asked.
        """
        if report is not None and not report.passed:
            return RunVerdict("stopped: critical expectations are not met, nothing was committed", "critical", True)
        lost = []
        if self.quarantined:
            lost.append(f"{self.quarantined:,} ranges or records could not be read as they should (table quarantine)")
        if self.gaps:
            lost.append(f"{self.gaps:,} ranges of the log are gone (table gaps)")
        if self.is_damage:
            return RunVerdict(f"archived, with damage or loss: {'; '.join(lost)}", "critical", True)
        if lost:
            return RunVerdict(f"archived; as was to be expected, {'; '.join(lost)}", "warning")
        if report is not None and report.warnings:
            return RunVerdict("archived, with warnings", "warning")
        return RunVerdict("archived, without a fault" if report is not None else "archived")
