"""What can go wrong in an erasure.

ErasureError                 the message is for a user
└── ConcurrentErasureError   other runs were first again and again
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ErasureError(CommitLakeError):
    """An erasure that cannot be done as it was asked for."""

    exit_code = ExitCode.USAGE


class ConcurrentErasureError(ErasureError):
    """Other runs have changed a table again and again meanwhile; what is done stays done."""

    exit_code = ExitCode.REFUSED
    is_transient = True
