"""Results of all expectations of an archive run, sentences on those that are not met, and the verdict on the run.

Page, summary, exit code and the rows of `quality_results` follow from the same results and verdict.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from commitlake.connectors.arrow_schemas import arrow_schema
from commitlake.schemas.formatted_counts import format_count
from commitlake.schemas.quality.expectation import Expectation, Severity
from commitlake.schemas.quality.suites import SUITES
from commitlake.schemas.tables.archive_runs import QUALITY_RESULTS

MAX_EXAMPLES = 10
"""Largest number of rows in the examples of a result."""
MAX_DAMAGED_QUEUES = 1000
"""Largest number of rows in the examples of damage, which has one for each queue."""
_SHOWN = 3
_GRAINS = {suite.name: str(suite.grain) for suite in SUITES}
"""What a judged row stands for, by suite."""
_OBSERVED = {"ExpectColumnSumToBeBetween": "{:,}", "ExpectColumnMaxToBeBetween": "up to {:,}"}
"""The observed value in words, for types of expectations whose value a reader can use."""
_PLACES = {"broker": "broker", "topic": "topic", "queue_id": "queue"}


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of checking one expectation on all rows of a table.

    Attributes:
        suite: name of the suite.
        expectation: the expectation.
        success: True if it was met.
        observed: observed value: a number, or None.
        judged: number of rows of the judged table.
        unexpected: number of rows that do not meet it.
        examples: the first of these rows, of damage one for each queue: their keys and the columns in question.
    """

    suite: str
    expectation: Expectation
    success: bool
    observed: float | int | str | None
    judged: int
    unexpected: int
    examples: Sequence[Mapping[str, object]] = ()

    @property
    def is_critical(self) -> bool:
        """True if not meeting the expectation stops the commit."""
        return self.expectation.severity is Severity.CRITICAL

    @property
    def is_damage(self) -> bool:
        """True if a failure of this expectation means that some queues are damaged, but not the whole run."""
        return self.expectation.severity is Severity.DAMAGE

    @property
    def max_examples(self) -> int:
        """Largest number of failing rows to report as examples."""
        return MAX_DAMAGED_QUEUES if self.is_damage else MAX_EXAMPLES


@dataclass(frozen=True, slots=True)
class QualityReport:
    """Results of all expectations of one run.

    Attributes:
        judgements: results, suite by suite.
        judged_at: time of the judgement.
    """

    judgements: Sequence[Judgement]
    judged_at: datetime.datetime

    @property
    def critical_failures(self) -> list[Judgement]:
        """Unmet critical expectations, which stop the commit."""
        return [found for found in self.judgements if not found.success and found.is_critical]

    @property
    def damage_judgements(self) -> list[Judgement]:
        """Unmet expectations that mean damage to single queues."""
        return [found for found in self.judgements if not found.success and found.is_damage]

    @property
    def warnings(self) -> list[Judgement]:
        """Unmet expectations that are neither critical nor damage."""
        return [
            found for found in self.judgements if not found.success and not found.is_critical and not found.is_damage
        ]

    @property
    def unmet_judgements(self) -> list[Judgement]:
        """All unmet expectations, critical ones first, then damage."""
        return [*self.critical_failures, *self.damage_judgements, *self.warnings]

    @property
    def has_passed(self) -> bool:
        """True if the run may be committed."""
        return not self.critical_failures


def join_reports(reports: Sequence[QualityReport]) -> QualityReport:
    """Join the quality reports of a run's commits; an expectation is met if it is met in every commit."""
    found: dict[tuple[str, str], Judgement] = {}
    for report in reports:
        for one in report.judgements:
            key = (one.suite, one.expectation.name)
            found[key] = _join_judgements(found[key], one) if key in found else one
    return QualityReport([*found.values()], reports[-1].judged_at)


def _join_judgements(first: Judgement, second: Judgement) -> Judgement:
    values = [each.observed for each in (first, second) if isinstance(each.observed, int | float)]
    joined = sum if "Sum" in first.expectation.type else min if "Min" in first.expectation.type else max
    observed = joined(values) if values else second.observed
    return replace(
        first,
        success=first.success and second.success,
        observed=observed,
        judged=first.judged + second.judged,
        unexpected=first.unexpected + second.unexpected,
        examples=_join_examples(first, second)[: first.max_examples],
    )


def _join_examples(first: Judgement, second: Judgement) -> list[Mapping[str, object]]:
    examples = [*first.examples, *second.examples]
    if not first.is_damage:
        return examples
    # Reversed twice, because a dict keeps the last value: of a queue's examples, the first one stays.
    by_queue = {tuple(example.get(name) for name in _PLACES): example for example in reversed(examples)}
    return [*by_queue.values()][::-1]


def expectation_sentences(report: QualityReport) -> list[str]:
    """Return a sentence for each unmet expectation: first the critical ones, then those that mean damage."""
    return [
        f"{found.expectation.severity}: {found.expectation.why} ({_observed_text(found)}). {found.expectation.action} "
        f"(expectation {found.suite}.{found.expectation.name})"
        for found in report.unmet_judgements
    ]


def brokers_with_failures(report: QualityReport) -> list[str] | None:
    """Return the brokers whose data prevent the commit; None if the report cannot name all of them."""
    names: dict[str, None] = {}
    for found in report.critical_failures:
        if found.unexpected > len(found.examples):
            return None
        for example in found.examples:
            if example.get("broker") is None:
                return None
            names[str(example["broker"])] = None
    return list(names)


def _observed_text(judgement: Judgement) -> str:
    """Return in words how many messages or rows do not meet an expectation, and where the first ones are."""
    rows = f"{judgement.unexpected:,} of {format_count(judgement.judged, _GRAINS.get(judgement.suite, 'row'))}"
    places = "; ".join(_profile_row_text(example) for example in judgement.examples[:_SHOWN])
    more = "; and more" if places and judgement.unexpected > _SHOWN else ""
    where = f"{rows}: {places}{more}" if places else rows
    words = _OBSERVED.get(judgement.expectation.type)
    if words is None or not isinstance(judgement.observed, int | float):
        return where
    return f"{words.format(judgement.observed)} in {where}"


def _profile_row_text(example: Mapping[str, object]) -> str:
    """Return in words which broker, topic, queue and time window a row is about, with control characters escaped."""
    parts = [f"{word} {example[name]!a}" for name, word in _PLACES.items() if example.get(name) is not None]
    if example.get("window_start") is not None:
        parts.append(f"from {example['window_start']} on")
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """Summary of a run's quality: a sentence, its severity, and whether messages were lost.

    Attributes:
        text: the verdict as a sentence.
        kind: `good`, `warning` or `critical`; determines the colour on a page.
        is_damage: True if the exit code must report damage or loss.
    """

    text: str
    kind: str = "good"
    is_damage: bool = False

    def with_outdated_follower(self, follower: str) -> RunVerdict:
        """Return this verdict with a remark that HBase or another copy of the lake could not be updated.

        Args:
            follower: name of the follower.
        """
        text = f"{self.text}; {follower} does not have it yet, the next run tries again"
        return replace(self, text=text, kind="warning" if self.kind == "good" else self.kind)

    def with_unread_files(self, count: int) -> RunVerdict:
        """Return this verdict with the remark that files besides the logs could not be read.

        No message is lost by that, so it is a warning; a later run reads the files again.

        Args:
            count: number of problems; of 0, the verdict is unchanged.
        """
        if not count:
            return self
        text = self.text.removesuffix(_NO_PROBLEMS)
        joined = "; " if "with" in text else ", with warnings: "
        text += f"{joined}{format_count(count, 'problem')} with files beside the log"
        return replace(self, text=text, kind="warning" if self.kind == "good" else self.kind)

    def with_unread_messages(self, unread_sentences: Sequence[str]) -> RunVerdict:
        """Return this verdict with the remark that the run did not read all messages of the stores.

        Args:
            unread_sentences: sentences on these messages; without any, the verdict is unchanged.
        """
        if not unread_sentences:
            return self
        text = f"{self.text.removesuffix(_NO_PROBLEMS)}; other messages of the stores are not read"
        return RunVerdict(text, "critical", True)


_NO_PROBLEMS = " without problems"


def _damage_text(judgement: Judgement) -> str:
    more = " or more" if len(judgement.examples) == judgement.max_examples else ""
    queues = f"{format_count(len(judgement.examples), 'queue')}{more}"
    return f"messages of {queues} are missing in a log without damage (table quality_results)"


@dataclass(frozen=True, slots=True)
class Losses:
    """Messages that a run has lost: damaged ranges, gaps, and messages that were left out.

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
        """True if messages were lost and the user did not accept that."""
        return bool((self.quarantined and not self.accepts_quarantined) or (self.gaps and not self.accepts_gaps))

    def verdict(self, report: QualityReport | None = None) -> RunVerdict:
        """Return the run's verdict, from its losses and its unmet expectations.

        Args:
            report: results of the suites; None if they did not run.
        """
        if report is not None and not report.has_passed:
            return RunVerdict("stopped: critical expectations are not met, nothing was committed", "critical", True)
        lost = []
        if self.quarantined:
            ranges = format_count(self.quarantined, "range or record", "ranges or records")
            lost.append(f"{ranges} could not be read correctly (table quarantine)")
        if self.gaps:
            lost.append(
                f"{format_count(self.gaps, 'range of the log is', 'ranges of the log are')} missing (table gaps)"
            )
        damage = [] if report is None else report.damage_judgements
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


def to_quality_results(report: QualityReport, *, run_id: str, verdict: RunVerdict | None = None) -> pa.Table:
    """Convert a report to rows of `quality_results`.

    Args:
        report: results of the run.
        run_id: id of the archive run.
        verdict: verdict on the run, which is added as a row.
    """
    rows = [
        {
            "run_id": run_id,
            "suite": found.suite,
            "expectation": found.expectation.name,
            "severity": str(found.expectation.severity),
            "success": found.success,
            "observed_value": None if found.observed is None else json.dumps(found.observed),
            "judged_count": found.judged,
            "unexpected_count": found.unexpected,
            "examples": [json.dumps(example, default=str, ensure_ascii=False) for example in found.examples],
            "judged_at": report.judged_at,
        }
        for found in report.judgements
    ]
    if verdict is not None:
        rows.append(
            {
                "run_id": run_id,
                "suite": "run",
                "expectation": "verdict",
                "severity": "critical" if verdict.is_damage else "warning",
                "success": not verdict.is_damage,
                "observed_value": json.dumps(verdict.text),
                "judged_count": 1,
                "unexpected_count": int(verdict.is_damage),
                "examples": [],
                "judged_at": report.judged_at,
            }
        )
    return pa.Table.from_pylist(rows, schema=arrow_schema(QUALITY_RESULTS))
