"""Expectations as data: a condition on columns, the reason for it, and what to do if it is not met.

Types and their arguments are those of great_expectations 1.24. A suite applies to one table, whose rows are windows,
topics or brokers; `pipelines.quality.pandas_frames` lists the columns of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Severity(StrEnum):
    """Severity of an expectation that is not met.

    CRITICAL: the run has failed, and nothing is committed. DAMAGE: the log itself lacks something in some queues. All
    that it has is archived, these queues are named in `quality_results`, and the exit code reports damage. WARNING: it
    is printed.
    """

    CRITICAL = "critical"
    DAMAGE = "damage"
    WARNING = "warning"


class Grain(StrEnum):
    """Subject of each row of a table that is checked: a time window, a topic or a broker."""

    WINDOW = "window"
    TOPIC = "topic"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class Expectation:
    """Condition that the rows of a table must meet, such as a maximum value of a column.

    Attributes:
        name: name within its suite; a statement in snake case that is true if the expectation is met.
        type: class in `great_expectations.expectations`.
        kwargs: arguments of the class, including columns.
        severity: consequence if it is not met.
        why: meaning of an unmet expectation.
        action: what to do if the expectation is not met.
    """

    name: str
    type: str
    kwargs: Mapping[str, object]
    severity: Severity
    why: str
    action: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the expectation checks."""
        single = [self.kwargs[name] for name in ("column", "column_A", "column_B") if name in self.kwargs]
        several = self.kwargs.get("column_list", ())
        assert isinstance(several, (tuple, list))
        return tuple(str(name) for name in (*single, *several))


@dataclass(frozen=True, slots=True)
class Suite:
    """All expectations that the rows of one table must meet.

    Attributes:
        name: unique name.
        grain: grain of the table.
        about: description for people.
        expectations: expectations in the order in which they are reported.
    """

    name: str
    grain: Grain
    about: str
    expectations: tuple[Expectation, ...] = field(default=())


def expect_none(name: str, column: str, severity: Severity, why: str, action: str) -> Expectation:
    """Return the expectation that a count column is 0 in all rows; the reported value is the sum of the column."""
    kwargs = {"column": column, "min_value": 0, "max_value": 0}
    return Expectation(name, "ExpectColumnSumToBeBetween", kwargs, severity, why, action)


def expect_at_most(name: str, column: str, limit: float, severity: Severity, why: str, action: str) -> Expectation:
    """Return an expectation that no value of a column exceeds a limit; the observed value is the maximum."""
    kwargs = {"column": column, "max_value": limit}
    return Expectation(name, "ExpectColumnMaxToBeBetween", kwargs, severity, why, action)


def expect_never_less(
    name: str, greater_column: str, less_column: str, severity: Severity, why: str, action: str
) -> Expectation:
    """Return the expectation that `greater_column` is never less than `less_column` within a row."""
    kwargs = {"column_A": greater_column, "column_B": less_column, "or_equal": True}
    return Expectation(name, "ExpectColumnPairValuesAToBeGreaterThanB", kwargs, severity, why, action)
