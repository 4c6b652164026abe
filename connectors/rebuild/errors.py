"""What keeps a store from being rebuilt.

RebuildError            a store, a folder or options that cannot be used as they are
├── BusyStoreError      a broker has the store open
└── DisagreementError   what was made, or the log itself, does not pass a verify: nothing is replaced
"""

from __future__ import annotations


class RebuildError(Exception):
    """A rebuild that cannot be done; the message is for a user."""


class BusyStoreError(RebuildError):
    """A store whose lock a broker holds: nothing of it may be replaced."""


class DisagreementError(RebuildError):
    """Files that do not agree with the log, or a log that is damaged: nothing of the store was replaced."""
