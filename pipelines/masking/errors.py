"""What can go wrong with masks.

MaskRuleError    a rule that is none, or lacks its key; the message is for a user
└── MasksChangedError   other rules, or another key, than those of the lake
MaskError        a message that cannot be masked
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class MaskRuleError(CommitLakeError):
    """A rule that cannot be used as it was given."""

    exit_code = ExitCode.USAGE


class MasksChangedError(MaskRuleError):
    """Rules that are not those by which the lake's messages were masked."""

    exit_code = ExitCode.REFUSED


class MaskError(CommitLakeError):
    """A message that cannot be masked; the text says why."""

    exit_code = ExitCode.DAMAGE
