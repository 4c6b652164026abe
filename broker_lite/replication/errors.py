"""What can go wrong between a master and a slave.

    ReplicationError
    ├── PeerError      the other side says what it must not: the connection ends
    └── CopyError      bytes that cannot stand in this log: its files are not those of the master, or the log is damaged

Either way the slave connects again after a while, and begins where its log ends.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class ReplicationError(CommitLakeError):
    """A log cannot be copied."""


class PeerError(ReplicationError):
    """The other side of a connection breaks the protocol, or asks for what is not there."""


class CopyError(ReplicationError):
    """Bytes of a master's log that cannot stand in this one."""
