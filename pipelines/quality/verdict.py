"""Verdict on an archive run, used by page, summary, `quality_results` and exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from commitlake.pipelines.quality.judgement import Judgement
from commitlake.pipelines.quality.report import QualityReport
from commitlake.schemas.counts import count_text


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on a run.

    Attributes:
        text: the verdict as a sentence.
        kind: `good`, `warning` or `critical`; determines the colour on a page.
        is_damage: True if the exit code must report damage or loss.
    """

    text: str
    kind: str = "good"
    is_damage: bool = False

    def without(self, follower: str) -> RunVerdict:
        """Return this verdict with the remark that a follower of the lake could not be updated.

        Args:
            follower: name of the follower.
        """
        text = f"{self.text}; {follower} does not have it yet, the next run tries again"
        return replace(self, text=text, kind="warning" if self.kind == "good" else self.kind)

    def with_unread(self, count: int) -> RunVerdict:
        """Return this verdict with the remark that files beside the logs could not be read.

        No message is lost by that, so it is a warning; a later run reads the files again.

        Args:
            count: number of problems; of 0, the verdict is unchanged.
        """
        if not count:
            return self
        text = self.text.removesuffix(_NO_PROBLEMS)
        joined = "; " if "with" in text else ", with warnings: "
        text += f"{joined}{count_text(count, 'problem')} with files beside the log"
        return replace(self, text=text, kind="warning" if self.kind == "good" else self.kind)

    def without_newer(self, newer: Sequence[str]) -> RunVerdict:
        """Return this verdict with the remark that stores have messages that the run does not reach.

        Args:
            newer: sentences on these messages; without any, the verdict is unchanged.
        """
        if not newer:
            return self
        text = f"{self.text.removesuffix(_NO_PROBLEMS)}; other messages of the stores are not read"
        return RunVerdict(text, "critical", True)


_NO_PROBLEMS = " without problems"


def _damage_text(found: Judgement) -> str:
    more = " or more" if len(found.examples) == found.max_examples else ""
    queues = f"{count_text(len(found.examples), 'queue')}{more}"
    return f"messages of {queues} are missing in a log without damage (table quality_results)"


@dataclass(frozen=True, slots=True)
class Losses:
    """Losses of a run: damaged ranges, gaps, and messages that were left out.

    Attributes:
        quarantined: number of ranges and records in `quarantine`.
        gaps: number of ranges in `gaps`.
        accepts_quarantined: True if the user accepts quarantined ranges.
        accepts_gaps: True if the user accepts gaps.
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
            report: results of the suites; None if they did not run.
        """
        if report is not None and not report.passed:
            return RunVerdict("stopped: critical expectations are not met, nothing was committed", "critical", True)
        lost = []
        if self.quarantined:
            ranges = count_text(self.quarantined, "range or record", "ranges or records")
            lost.append(f"{ranges} could not be read correctly (table quarantine)")
        if self.gaps:
            lost.append(f"{count_text(self.gaps, 'range of the log is', 'ranges of the log are')} missing (table gaps)")
        damage = [] if report is None else report.damage
        lost += [_damage_text(found) for found in damage]
        if self.is_damage or damage:
            return RunVerdict(f"archived, with damage or loss: {'; '.join(lost)}", "critical", True)
        if lost:
            return RunVerdict(f"archived; as accepted, {'; '.join(lost)}", "warning")
        if report is not None and report.warnings:
            unmet = len(report.warnings)
            said = "1 expectation is not met" if unmet == 1 else f"{unmet:,} expectations are not met"
            return RunVerdict(f"archived, with warnings: {said}", "warning")
        return RunVerdict(f"archived{_NO_PROBLEMS}" if report is not None else "archived")
