"""What keeps a store from being verified at all.

VerifyError     a store that is not on a local disk, or options that do not fit it
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class VerifyError(CommitLakeError):
    """A store that cannot be verified; the message is for a user."""

    exit_code = ExitCode.USAGE
