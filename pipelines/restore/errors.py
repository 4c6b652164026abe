"""What keeps a store from being restored.

RestoreError            a lake, a folder or options that cannot be used as they are
├── LakeRowsError       rows of the lake that cannot stand in one log
└── MissingBodyError    a body that the lake no longer has, or that is damaged
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class RestoreError(CommitLakeError):
    """A restore that cannot be done; the message is for a user."""

    exit_code = ExitCode.USAGE


class LakeRowsError(RestoreError):
    """Rows that contradict one another, or the size of segments."""


class MissingBodyError(RestoreError):
    """A body that cannot be had."""
