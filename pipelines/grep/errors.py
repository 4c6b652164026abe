"""What can go wrong in a search of bodies.

GrepError   the message is for a user
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class GrepError(CommitLakeError):
    """A search that cannot be done as it was asked for."""

    exit_code = ExitCode.USAGE
