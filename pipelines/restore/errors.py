"""Errors of a restore.

RestoreError            a lake, a folder or options that cannot be used as they are
├── LakeRowsError       rows of the lake that cannot stand in one log
└── MissingBodyError    a body that the lake no longer has, or that is damaged
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class RestoreError(CommitLakeError):
    """A lake, a folder or options that cannot be used for a restore."""

    exit_code = ExitCode.USAGE


class LakeRowsError(RestoreError):
    """Rows that contradict each other, or the segment size."""


class MissingBodyError(RestoreError):
    """A body cannot be read."""
