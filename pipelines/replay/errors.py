"""Errors that prevent a replay from starting or continuing."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ReplayError(CommitLakeError):
    """Base class of the package's errors; the message is for users."""

    exit_code = ExitCode.USAGE


class UnknownGroupError(ReplayError):
    """No offset of the consumer group is known."""


class OtherReplayError(ReplayError):
    """Another unfinished replay may have sent these messages, or may still send them."""

    exit_code = ExitCode.REFUSED


class TargetError(ReplayError):
    """The target cannot take the messages: it lacks a topic or queues, or a queue is no longer the same."""

    exit_code = ExitCode.REFUSED


class TargetGoneError(ReplayError):
    """The target did not answer, or refused everything, for too long; the replay can be resumed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class StoppedError(ReplayError):
    """The replay was stopped while it waited for its target."""


class MessagesGoneError(ReplayError):
    """Messages of the plan are no longer in the lake."""

    exit_code = ExitCode.DAMAGE


class OtherProcessError(ReplayError):
    """Another process has taken the replay over, or is running it."""

    exit_code = ExitCode.REFUSED
    is_transient = True
