"""What can go wrong while a lake is audited."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class AuditError(CommitLakeError):
    """A lake could not be audited; the message says why, and what to do."""

    exit_code = ExitCode.FAILED


class NotThereYetError(AuditError):
    """Another process has not written yet what the audit compares."""

    is_transient = True


class NothingInCommonError(AuditError):
    """The stores that are named hold nothing of what was archived."""

    exit_code = ExitCode.USAGE
