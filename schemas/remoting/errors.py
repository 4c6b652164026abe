"""What can be wrong with a command whose frame is right.

CommandError (ValueError)   a command that does not say what its code needs; the message is for the peer
├── HeaderError             an ext field that is missing or is no such value
├── BodyError               a body that is not what the code says
├── SignatureError          a request that is not signed, or not by somebody who knows the secret
└── NotPermittedError       a request that its account may not send, or not on this connection

A frame that is wrong is a schemas.layouts.errors.LayoutError.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class CommandError(CommitLakeError, ValueError):
    """A command that does not say what its code needs."""


class HeaderError(CommandError):
    """An ext field that is missing or is no such value."""


class BodyError(CommandError):
    """A body that is not what the code says."""


class SignatureError(CommandError):
    """A request that is not signed, or not by somebody who knows the secret."""


class NotPermittedError(CommandError):
    """A request that its account may not send, or not on this connection."""
