"""The result of one expectation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from commitlake.schemas.quality.expectation import Expectation, Severity

MAX_EXAMPLES = 10
"""Rows that a judgement shows."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One expectation, judged.

    Attributes:
        suite: the suite's name.
        expectation: what was expected.
        success: whether it was met.
        observed: what was found: a number, or None.
        judged: rows of the judged table.
        unexpected: how many of them did not meet it.
        examples: the first of these, their keys and the columns in question.
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
