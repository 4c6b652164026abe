"""Errors of an audit."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class AuditError(CommitLakeError):
    """A lake could not be audited; the message says why, and what to do."""

    exit_code = ExitCode.FAILED


class PendingDataError(AuditError):
    """Another process has not yet written data that the audit compares."""

    is_transient = True


class NothingInCommonError(AuditError):
    """The given stores have nothing in common with the archive."""

    exit_code = ExitCode.USAGE
