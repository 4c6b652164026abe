"""Errors of erasures.

ErasureError                 the message is for users
└── ConcurrentErasureError   other writers committed first on every attempt
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ErasureError(CommitLakeError):
    """An erasure cannot be done as requested."""

    exit_code = ExitCode.USAGE


class ConcurrentErasureError(ErasureError):
    """Other writers changed a table on every attempt; finished steps remain done."""

    exit_code = ExitCode.REFUSED
    is_transient = True
