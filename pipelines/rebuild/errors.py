"""What keeps a store from being rebuilt.

RebuildError            a store, a folder or options that cannot be used as they are
├── BusyStoreError      a broker has the store open
├── UnknownDelaysError  the delivery times of delayed messages would be guessed: nothing is replaced
└── DisagreementError   what was made, or the log itself, does not pass a verify: nothing is replaced
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class RebuildError(CommitLakeError):
    """A rebuild that cannot be done; the message is for a user."""

    exit_code = ExitCode.USAGE


class BusyStoreError(RebuildError):
    """A store whose lock a broker holds: nothing of it may be replaced."""


class UnknownDelaysError(RebuildError):
    """A broker with its own messageDelayLevel, of which some levels are not known."""


class DisagreementError(RebuildError):
    """Files that do not agree with the log, or a log that is damaged: nothing of the store was replaced.

    Attributes:
        is_of_log: it is the log that is damaged.
    """

    def __init__(self, message: str, is_of_log: bool) -> None:
        """Say what disagrees.

        Args:
            message: for a user.
            is_of_log: see above.
        """
        super().__init__(message, is_of_log)  # both, so that the error can be pickled
        self.is_of_log = is_of_log

    def __str__(self) -> str:
        return str(self.args[0])
