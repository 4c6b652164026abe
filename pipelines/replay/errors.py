"""Errors that prevent a replay from starting or continuing."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ReplayError(CommitLakeError):
    """Base class of replay errors, whose text is shown to the user."""

    exit_code = ExitCode.USAGE


class UnknownGroupError(ReplayError):
    """Error because no offset of the consumer group is known."""


class StoppedError(ReplayError):
    """Error because the replay was stopped while it waited for the target brokers."""


class OtherProcessError(ReplayError):
    """Error because another process is running the replay, or has taken it over."""

    exit_code = ExitCode.REFUSED
    is_transient = True
