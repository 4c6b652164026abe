"""Errors of a rebuild.

UsageError
├── BusyStoreError      a broker has the store open
├── UnknownDelaysError  delivery times of delayed messages are unknown: nothing is replaced
└── DisagreementError   the new files, or the log itself, do not pass verification: nothing is replaced
"""

from __future__ import annotations

from commitlake.schemas.errors import UsageError


class BusyStoreError(UsageError):
    """Error because a broker has the store open, so that its files must not be replaced."""


class UnknownDelaysError(UsageError):
    """Error because a broker's delay levels are not the default, and some of them are unknown."""


class DisagreementError(UsageError):
    """Error because the log is damaged, or the rebuilt files do not match it; the store is unchanged.

    Attributes:
        is_of_log: True if the log is damaged.
    """

    def __init__(self, message: str, is_of_log: bool) -> None:
        """Create the error from its text, and whether it is the log that is damaged.

        Args:
            message: what disagrees.
            is_of_log: True if the log is damaged.
        """
        super().__init__(message, is_of_log)  # both, so that the error can be pickled
        self.is_of_log = is_of_log

    def __str__(self) -> str:
        return str(self.args[0])
