"""Errors of commands whose frame is valid.

CommandError (ValueError)   a command without the data that its code requires; the message is for the peer
├── BodyError               a body that does not match the code
└── NotPermittedError       a request that its account may not send, or not on this connection

An invalid frame raises schemas.layouts.errors.LayoutError.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class CommandError(CommitLakeError, ValueError):
    """Error for a command without the data that its code requires."""


class BodyError(CommandError):
    """Error for a body that does not have the format that the command's code requires."""


class NotPermittedError(CommandError):
    """Error for a request that its account may not send, or may not send over this connection."""
