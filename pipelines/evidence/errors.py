"""Errors of evidence.

EvidenceError   its message is written for users
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class EvidenceError(CommitLakeError):
    """A key that cannot be used, or an invalid document."""

    exit_code = ExitCode.USAGE
