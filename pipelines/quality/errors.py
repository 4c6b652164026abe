"""Errors of quality checks.

QualityError
├── ProfileError   a table is not what a profile is made of
└── JudgeError     an expectation could not be judged: neither good data nor bad
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class QualityError(CommitLakeError):
    """Quality could not be judged; the message says why."""

    exit_code = ExitCode.FAILED


class ProfileError(QualityError):
    """A table does not have the columns of a profile."""


class JudgeError(QualityError):
    """An expectation could not be evaluated."""
