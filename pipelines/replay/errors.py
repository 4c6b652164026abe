"""Errors that prevent a replay from starting or continuing."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ReplayError(CommitLakeError):
    """Base class of the package's errors; the message is for users."""

    exit_code = ExitCode.USAGE


class UnknownGroupError(ReplayError):
    """No offset of the consumer group is known."""


class StoppedError(ReplayError):
    """The replay was stopped while it waited for the target brokers."""


class OtherProcessError(ReplayError):
    """Another process has taken the replay over, or is running it."""

    exit_code = ExitCode.REFUSED
    is_transient = True
