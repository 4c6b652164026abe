"""Lets great_expectations remember the configuration of the expectation that it is working on.

An expectation makes its configuration anew, from a model of pydantic, whenever a single value of it is read: some
seventy times for each expectation, which is a third of the time that a small profile takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class _Last:
    """Function of one argument that remembers its last argument, by identity, and its result."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self._last: tuple[Any, Any] = (None, None)

    def __call__(self, argument: Any) -> Any:
        if self._last[0] is not argument:
            self._last = argument, self.function(argument)
        return self._last[1]


def remember_configuration() -> None:
    """Let great_expectations remember it, in a process where nobody changes an expectation after it was made."""
    from great_expectations.expectations.expectation import Expectation  # noqa: PLC0415 (seconds; see `loading`)

    made = Expectation.configuration.fget
    if not isinstance(made, _Last):
        Expectation.configuration = property(_Last(made))
