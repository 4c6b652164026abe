"""`--fail-if 'time_lag > 10m'`: conditions on rows of lag that make the job fail."""

from __future__ import annotations

import argparse
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from commitlake.jobs.arguments.durations import parse_duration
from commitlake.pipelines.lag.measure import Lag
from commitlake.pipelines.lag.verdicts import LagVerdict
from commitlake.schemas.layouts.numbers import INT64_MAX, parse_int

_CONDITION = re.compile(r"\s*(messages|bytes|time_lag|verdict)\s*(>=|<=|>|<|=)\s*(\S+)\s*")
_ORDERS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "=": operator.eq,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a row of lag.

    Attributes:
        text: The condition as it was given.
        field: Name of the field: messages, bytes, time_lag or verdict.
        sign: Sign of the comparison.
        value: Value that the field is compared with: seconds for time_lag, a verdict's name for verdict.
    """

    text: str
    field: str
    sign: str
    value: float | str

    def holds(self, row: Lag) -> bool:
        """Return True if a row meets the condition; of a range, the upper bound is compared if it has one."""
        if self.field == "verdict":
            return row.judged.verdict == self.value
        bounds = {"messages": row.messages, "bytes": row.bytes, "time_lag": row.seconds}[self.field]
        assert not isinstance(self.value, str)
        return _ORDERS[self.sign](bounds.largest, self.value)


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        argparse.ArgumentTypeError: It is not a condition.
    """
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a condition: expected messages, bytes, time_lag or verdict, one of > >= < <= =, and a "
            "value, as in 'time_lag > 10m', 'messages >= 1000' or 'verdict = stalled'"
        )
    field, sign, value = match.groups()
    if field == "verdict":
        names = [str(verdict) for verdict in LagVerdict]
        if sign != "=" or value not in names:
            raise argparse.ArgumentTypeError(f"{text!r}: expected verdict = one of {', '.join(names)}")
        return Condition(text, field, sign, value)
    if field == "time_lag":
        return Condition(text, field, sign, parse_duration(value).total_seconds())
    number = parse_int(value, 0, INT64_MAX)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number after {sign}, found {value!r}")
    return Condition(text, field, sign, number)
