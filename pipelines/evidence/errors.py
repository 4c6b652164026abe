"""What can go wrong with evidence.

EvidenceError   the message is for a user
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class EvidenceError(CommitLakeError):
    """A key that cannot be used, or a document that is none."""

    exit_code = ExitCode.USAGE
