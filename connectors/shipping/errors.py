"""Errors of targets.

ShipError                   a target cannot be used: what was found, and what to do
├── ShipUnavailableError    a full disk or an unreachable server; a later attempt may succeed
└── ShipNameError           the target cannot have a file of that name
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ShipError(CommitLakeError):
    """A target cannot be used."""

    exit_code = ExitCode.USAGE


class ShipUnavailableError(ShipError):
    """A target cannot be written now; a later attempt may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class ShipNameError(ShipError):
    """The target cannot have a file of that name, so the file is skipped."""
