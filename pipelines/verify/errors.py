"""Errors that prevent a store from being verified.

VerifyError     a store that is not on a local disk, or options that do not fit it
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class VerifyError(CommitLakeError):
    """A store cannot be verified, as it is not on a local disk, or options do not fit it."""

    exit_code = ExitCode.USAGE
