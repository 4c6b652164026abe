"""Errors of masks.

MaskRuleError    an invalid rule, or one without its key; the message is written for users
└── MasksChangedError   rules or a key other than those of the lake
MaskError        a message that cannot be masked
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class MaskRuleError(CommitLakeError):
    """A rule that cannot be used."""

    exit_code = ExitCode.USAGE


class MasksChangedError(MaskRuleError):
    """Rules that differ from those with which the lake's messages were masked."""

    exit_code = ExitCode.REFUSED


class MaskError(CommitLakeError):
    """A message that cannot be masked; the text gives the reason."""

    exit_code = ExitCode.DAMAGE
