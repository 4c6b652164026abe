"""Errors of the connection between the lake and HBase.

HBaseError
├── HBaseRefusedError       HBase refuses the request: no such table, no permission, a codec that is not installed
└── ConcurrentFollowError   another run has updated the table meanwhile
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class HBaseError(CommitLakeError):
    """Base class of all errors of this package."""

    exit_code = ExitCode.FAILED


class HBaseRefusedError(HBaseError):
    """HBase refuses a request; a retry would not help."""


class ConcurrentFollowError(HBaseError):
    """Another run has updated the table's progress. Rows that both wrote are identical."""
