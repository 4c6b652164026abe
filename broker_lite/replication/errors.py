"""Errors of replication.

    ReplicationError
    ├── PeerError      the peer violates the protocol; the connection is closed
    └── CopyError      bytes that are not a valid continuation of this log: wrong master, or a damaged log

In both cases the slave reconnects after a pause, and resumes at the end of its log.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class ReplicationError(CommitLakeError):
    """Base class of the errors of replication."""


class PeerError(ReplicationError):
    """Error for a peer that violates the protocol, or requests data that does not exist."""


class CopyError(ReplicationError):
    """Error for bytes of a master's log that are not a valid continuation of this one."""
