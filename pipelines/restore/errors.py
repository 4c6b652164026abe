"""Errors of a restore.

RestoreError            a lake, folder or option that cannot be used
├── LakeRowsError       rows of the lake that do not fit into one log
└── MissingBodyError    a body that is damaged or no longer in the lake
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class RestoreError(CommitLakeError):
    """A lake, folder or option that cannot be used for a restore."""

    exit_code = ExitCode.USAGE


class LakeRowsError(RestoreError):
    """Rows that contradict each other or the segment size."""


class MissingBodyError(RestoreError):
    """A body that cannot be read."""
