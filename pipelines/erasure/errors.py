"""Errors of erasures.

ErasureError                 the message is for users
└── ConcurrentErasureError   other writers committed first every time
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ErasureError(CommitLakeError):
    """An erasure cannot be done as requested."""

    exit_code = ExitCode.USAGE


class ConcurrentErasureError(ErasureError):
    """Other writers have changed a table every time; finished steps remain done."""

    exit_code = ExitCode.REFUSED
    is_transient = True
