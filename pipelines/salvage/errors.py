"""What keeps a log from being salvaged.

SalvageError    a store or a folder that cannot be used as it is
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class SalvageError(CommitLakeError):
    """A log that cannot be salvaged; the message is for a user."""

    exit_code = ExitCode.USAGE
