"""The result of one expectation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commitlake.schemas.quality.expectation import Expectation, Severity

MAX_EXAMPLES = 10
"""Largest number of rows in the examples of a result."""
MAX_DAMAGED_QUEUES = 1000
"""Largest number of rows in the examples of damage, which has one for each queue."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of one expectation.

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
        """True if an unmet expectation stops the commit."""
        return self.expectation.severity is Severity.CRITICAL

    @property
    def is_damage(self) -> bool:
        """True if an unmet expectation is damage to single queues."""
        return self.expectation.severity is Severity.DAMAGE

    @property
    def max_examples(self) -> int:
        """Largest number of examples."""
        return MAX_DAMAGED_QUEUES if self.is_damage else MAX_EXAMPLES
