"""Errors of a salvage.

SalvageError    a store or a folder that cannot be used
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class SalvageError(CommitLakeError):
    """A store or a folder that cannot be used for a salvage."""

    exit_code = ExitCode.USAGE
