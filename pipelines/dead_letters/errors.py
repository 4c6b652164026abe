"""Errors of the selection and export of dead letters."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class DeadLetterError(CommitLakeError):
    """An invalid selection, or one of too many letters; the message is written for users."""

    exit_code = ExitCode.USAGE
