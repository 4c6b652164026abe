"""Conditions of SQL92 expressions: functions of properties whose result is true, false or unknown (None)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from commitlake.schemas.errors import CommitLakeError
from commitlake.schemas.layouts.numbers import parse_decimal, parse_int64

Value = str | int | float | bool | None
Properties = Mapping[str, str]
Condition = Callable[[Properties], bool | None]
Operand = Callable[[Properties], Value]

SEARCHES_AT_ONCE = 24 << 20
"""Cost of the searches between two pauses: some 3 ms, at 0.1 to 0.3 ns for each unit of `_search_cost`."""
_LONG_PART = 128
"""Length from which Python searches in a time that does not depend on it."""


class PausedError(CommitLakeError):
    """Signal that an evaluation has searched for long enough; evaluating it again continues it."""


class PausableProperties(dict[str, str]):
    """Properties of a message for an evaluation with long searches, which pauses between two of them.

    A search may compare every character of the text with every character of the pattern, and an expression may have 256
    searches in texts of 32 KB, which takes a tenth of a second. Results are cached, so each search runs once.
    """

    __slots__ = ("_left", "_results")

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self._results: dict[tuple[str, str], bool] = {}
        self._left = SEARCHES_AT_ONCE

    def contains(self, text: str, part: str) -> bool:
        """Return whether a text contains another.

        Raises:
            PausedError: if the searches since the last pause have cost enough.
        """
        found = self._results.get((text, part))
        if found is None:
            if self._left <= 0:
                self._left = SEARCHES_AT_ONCE
                raise PausedError("evaluation paused")
            self._left -= _search_cost(text, part)
            found = self._results[text, part] = part in text
        return found


def _search_cost(text: str, part: str) -> int:
    return len(text) * (8 + min(len(part), _LONG_PART))


def any_of(parts: list[Condition]) -> Condition:
    """Return an OR condition: true if one part is true, else unknown if one is unknown."""

    def condition(properties: Properties) -> bool | None:
        result: bool | None = False
        for part in parts:
            value = part(properties)
            if value:
                return True
            if value is None:
                result = None
        return result

    return condition


def all_of(parts: list[Condition]) -> Condition:
    """Return an AND condition: false if one part is false, else unknown if one is unknown."""

    def condition(properties: Properties) -> bool | None:
        result: bool | None = True
        for part in parts:
            value = part(properties)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return condition


def negated(part: Condition) -> Condition:
    """Return a NOT condition, which leaves unknown results unknown."""

    def condition(properties: Properties) -> bool | None:
        value = part(properties)
        return None if value is None else not value

    return condition


def equal(left: Operand, right: Operand) -> Condition:
    """Return an equality condition; operands are compared by a type that fits both."""

    def condition(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        if isinstance(one, str) and isinstance(other, str):
            return one == other
        if isinstance(one, bool) or isinstance(other, bool):
            return _truth(one) == _truth(other)
        return _number_of(one) == _number_of(other) is not None

    return condition


def ordered(left: Operand, right: Operand, compare: Callable[[float, float], bool]) -> Condition:
    """Return an order condition such as `<` on numbers."""

    def condition(properties: Properties) -> bool | None:
        one, other = left(properties), right(properties)
        if one is None or other is None:
            return None
        first, second = _number_of(one), _number_of(other)
        return first is not None and second is not None and compare(first, second)

    return condition


def text_test(left: Operand, test: Callable[[str], bool]) -> Condition:
    """Return a condition that tests a text."""

    def condition(properties: Properties) -> bool | None:
        value = left(properties)
        if value is None:
            return None
        return isinstance(value, str) and test(value)

    return condition


def contains(left: Operand, part: str) -> Condition:
    """Return a condition that searches in a text."""

    def condition(properties: Properties) -> bool | None:
        value = left(properties)
        if value is None:
            return None
        if not isinstance(value, str):
            return False
        if isinstance(properties, PausableProperties):
            return properties.contains(value, part)
        return part in value

    return condition


def _number_of(value: Value) -> int | float | None:
    if isinstance(value, bool) or value is None:
        return None
    if not isinstance(value, str):
        return value
    number = parse_int64(value)
    return parse_decimal(value) if number is None else number


def _truth(value: Value) -> bool | None:
    if isinstance(value, str):
        return len(value) == len("true") and value.lower() == "true"
    return value if isinstance(value, bool) else None
