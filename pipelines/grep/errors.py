"""Errors of a search in bodies.

GrepError   its message is written for users
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class GrepError(CommitLakeError):
    """A search that cannot be done as requested."""

    exit_code = ExitCode.USAGE
