"""Results of all expectations of an archive run, and sentences on those that are not met."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from commitlake.pipelines.quality.judgement import Judgement
from commitlake.schemas.counts import count_text
from commitlake.schemas.quality.suites import SUITES

_SHOWN = 3
_GRAINS = {suite.name: str(suite.grain) for suite in SUITES}
"""What a judged row stands for, by suite."""
_OBSERVED = {"ExpectColumnSumToBeBetween": "{:,}", "ExpectColumnMaxToBeBetween": "up to {:,}"}
"""The observed value in words, for types of expectations whose value a reader can use."""
_PLACES = {"broker": "broker", "topic": "topic", "queue_id": "queue"}


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
    def damage(self) -> list[Judgement]:
        """Unmet expectations that are damage to single queues."""
        return [found for found in self.judgements if not found.success and found.is_damage]

    @property
    def warnings(self) -> list[Judgement]:
        """Unmet expectations that are neither critical nor damage."""
        return [
            found for found in self.judgements if not found.success and not found.is_critical and not found.is_damage
        ]

    @property
    def unmet(self) -> list[Judgement]:
        """All unmet expectations, critical ones first, then damage."""
        return [*self.critical_failures, *self.damage, *self.warnings]

    @property
    def passed(self) -> bool:
        """True if the run may be committed."""
        return not self.critical_failures


def join_reports(reports: Sequence[QualityReport]) -> QualityReport:
    """Return the results of several commits as those of one run. An expectation is met if it is met by each commit."""
    found: dict[tuple[str, str], Judgement] = {}
    for report in reports:
        for one in report.judgements:
            key = (one.suite, one.expectation.name)
            found[key] = _join(found[key], one) if key in found else one
    return QualityReport([*found.values()], reports[-1].judged_at)


def _join(one: Judgement, other: Judgement) -> Judgement:
    values = [each.observed for each in (one, other) if isinstance(each.observed, int | float)]
    joined = sum if "Sum" in one.expectation.type else min if "Min" in one.expectation.type else max
    observed = joined(values) if values else other.observed
    return replace(
        one,
        success=one.success and other.success,
        observed=observed,
        judged=one.judged + other.judged,
        unexpected=one.unexpected + other.unexpected,
        examples=_join_examples(one, other)[: one.max_examples],
    )


def _join_examples(one: Judgement, other: Judgement) -> list[Mapping[str, object]]:
    examples = [*one.examples, *other.examples]
    if not one.is_damage:
        return examples
    by_queue = {tuple(example.get(name) for name in _PLACES): example for example in reversed(examples)}
    return [*by_queue.values()][::-1]


def sentences(report: QualityReport) -> list[str]:
    """Return a sentence for each unmet expectation, critical ones first, then damage."""
    return [
        f"{found.expectation.severity}: {found.expectation.why} ({_observed(found)}). {found.expectation.action} "
        f"(expectation {found.suite}.{found.expectation.name})"
        for found in report.unmet
    ]


def brokers_concerned(report: QualityReport) -> list[str] | None:
    """Return the brokers whose data stop the commit; None if the report does not name all of them."""
    names: dict[str, None] = {}
    for found in report.critical_failures:
        if found.unexpected > len(found.examples):
            return None
        for example in found.examples:
            if example.get("broker") is None:
                return None
            names[str(example["broker"])] = None
    return list(names)


def _observed(found: Judgement) -> str:
    """Describe how many messages or rows do not meet an expectation, and where the first ones are."""
    rows = f"{found.unexpected:,} of {count_text(found.judged, _GRAINS.get(found.suite, 'row'))}"
    places = "; ".join(_place(example) for example in found.examples[:_SHOWN])
    more = "; and more" if places and found.unexpected > _SHOWN else ""
    where = f"{rows}: {places}{more}" if places else rows
    words = _OBSERVED.get(found.expectation.type)
    if words is None or not isinstance(found.observed, int | float):
        return where
    return f"{words.format(found.observed)} in {where}"


def _place(example: Mapping[str, object]) -> str:
    """Describe a row of the profile, with control characters of names escaped."""
    parts = [f"{word} {example[name]!a}" for name, word in _PLACES.items() if example.get(name) is not None]
    if example.get("window_start") is not None:
        parts.append(f"from {example['window_start']} on")
    return ", ".join(parts)
