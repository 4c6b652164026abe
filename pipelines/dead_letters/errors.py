"""Why dead letters cannot be chosen or exported."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class DeadLetterError(CommitLakeError):
    """A choice that has no meaning, or too much of it; the message is for a user."""

    exit_code = ExitCode.USAGE
