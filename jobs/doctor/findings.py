"""The result of one check of `doctor`."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class CheckState(StrEnum):
    """Outcome of a check of `doctor`: ok, warning, missing, or skipped."""

    OK = "ok"
    WARNING = "warning"
    """Some jobs or options cannot be used."""
    MISSING = "missing"
    """Something that was requested does not work."""
    SKIPPED = "skipped"
    """The check was not requested."""


class DoctorFinding(NamedTuple):
    """Result of one check of `doctor`, which is one line of its report.

    Attributes:
        check: name of the check, such as `java`.
        state: result of the check.
        found: description of what was found.
        advice: advice on what to do, or empty.
    """

    check: str
    state: CheckState
    found: str
    advice: str = ""
