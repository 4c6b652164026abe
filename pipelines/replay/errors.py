"""Why a replay cannot begin, or cannot go on."""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class ReplayError(CommitLakeError):
    """Root of the package's errors; the message is for a user."""

    exit_code = ExitCode.USAGE


class UnknownReplayError(ReplayError):
    """A replay that the lake does not know."""


class OtherReplayError(ReplayError):
    """Messages that another replay, which has not finished, may have sent or may still send."""

    exit_code = ExitCode.REFUSED


class TargetError(ReplayError):
    """A target that cannot take the messages: it lacks a topic or queues, or is not what it was."""

    exit_code = ExitCode.REFUSED


class TargetGoneError(ReplayError):
    """A target that did not answer, or refused everything, for too long; the replay can be resumed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class StoppedError(ReplayError):
    """Somebody has stopped the replay while it waited for its target."""


class MessagesGoneError(ReplayError):
    """Messages of the plan that are in the lake no longer."""

    exit_code = ExitCode.DAMAGE


class OtherProcessError(ReplayError):
    """Another process has gone on with the replay, or is at it now."""

    exit_code = ExitCode.REFUSED
    is_transient = True
