"""An expectation as data: what is expected of which column, why, and what to do where it is not met.

Types and their arguments are those of great_expectations 1.24. A suite is asked of one table, whose rows are windows,
topics or brokers; `pipelines.quality.frames` says what columns each has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """What follows where an expectation is not met: CRITICAL stops the commit, WARNING is told."""

    CRITICAL = "critical"
    WARNING = "warning"


class Grain(StrEnum):
    """What a row of the judged table is."""

    WINDOW = "window"
    TOPIC = "topic"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation.

    Attributes:
        name: of the expectation in its suite; a sentence in snake case that is true where it is met.
        type: the class in `great_expectations.expectations`.
        kwargs: its arguments, columns among them.
        severity: what follows where it is not met.
        why: what it would mean if it were not met.
        action: what to do then.
    """

    name: str
    type: str
    kwargs: Mapping[str, object]
    severity: Severity
    why: str
    action: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        single = [self.kwargs[name] for name in ("column", "column_A", "column_B") if name in self.kwargs]
        several = self.kwargs.get("column_list", ())
        assert isinstance(several, (tuple, list))
        return tuple(str(name) for name in (*single, *several))


@dataclass(frozen=True, slots=True)
class Suite:
    """Expectations of one table.

    Attributes:
        name: unique among the suites.
        grain: what a row of the table is.
        about: a sentence for people.
        expectations: in the order in which to tell them.
    """

    name: str
    grain: Grain
    about: str
    expectations: tuple[Expectation, ...] = field(default=())


def none_of(name: str, column: str, severity: Severity, why: str, action: str) -> Expectation:
    """A column of counts is 0 in all rows; the observed value is their sum."""
    kwargs = {"column": column, "min_value": 0, "max_value": 0}
    return Expectation(name, "ExpectColumnSumToBeBetween", kwargs, severity, why, action)


def at_most(name: str, column: str, limit: float, severity: Severity, why: str, action: str) -> Expectation:
    """No value of a column is above a limit; the observed value is the greatest."""
    kwargs = {"column": column, "max_value": limit}
    return Expectation(name, "ExpectColumnMaxToBeBetween", kwargs, severity, why, action)


def never_less(name: str, greater: str, less: str, severity: Severity, why: str, action: str) -> Expectation:
    """In each row one column is at least another."""
    kwargs = {"column_A": greater, "column_B": less, "or_equal": True}
    return Expectation(name, "ExpectColumnPairValuesAToBeGreaterThanB", kwargs, severity, why, action)
