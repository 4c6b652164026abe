"""Errors of the broker.

    StoreError
    ├── StoreLockedError       the folder is open elsewhere
    ├── StoreFilesError        files that neither this store nor RocketMQ could have written
    │   ├── FileSizeError      files whose size differs from the options
    │   └── IndexSizeError     an IndexFile whose size differs from the options
    ├── DiskFullError          no room for the next file; nothing was written
    ├── MessageRefusedError    a message that a broker refuses, as MESSAGE_ILLEGAL
    ├── IndexDisabledError     a query by key in a store without an index
    ├── UnsupportedError       an operation that the store's layout does not support
    └── StoreUnusableError     closed, truncated by another process, or a write failed half-way; opening it recovers it
    DeliveryError
    ├── SendBackError          there is no message that can be retried
    └── TransactionError       the half message does not exist, belongs to another producer, or is already decided
    ReplicationError           bytes that do not continue this log: wrong master, or a damaged log
    └── PeerError              the peer violates the protocol; the connection is closed

After an error of replication the slave reconnects after a pause, and resumes at the end of its log. Invalid bytes in
general raise `schemas.layouts.errors.LayoutError`.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class StoreError(CommitLakeError):
    """Base class of the errors of a store; also raised itself for invalid settings."""


class StoreLockedError(StoreError):
    """Error for a folder that is in use by another store object or by a broker."""


class StoreFilesError(StoreError):
    """Error for files that do not fit one another or the options."""


class FileSizeError(StoreFilesError):
    """Error for existing files whose size differs from the size that an option sets.

    Attributes:
        option: name of the option for this size.
        size: actual file size in bytes; None if the files have different sizes.
    """

    def __init__(self, message: str, option: str, size: int | None) -> None:
        super().__init__(message if size is None else f"{message}; open the store with {option}={size}")
        self.option = option
        self.size = size


class IndexSizeError(StoreFilesError):
    """Error for an IndexFile whose size differs from the options index_slots and index_entries."""


class DiskFullError(StoreError):
    """Error for a disk without room for the next file; nothing was written."""


class MessageRefusedError(StoreError, ValueError):
    """Error for a message that the store does not accept; nothing was written."""


class IndexDisabledError(StoreError):
    """Error for a query by key in a store without an index."""


class UnsupportedError(StoreError):
    """Error for an operation that the store's layout does not support, whatever its settings."""


class StoreUnusableError(StoreError):
    """Error for a store that is closed, or that must be reopened because a write failed or a file was truncated."""


class DeliveryError(CommitLakeError):
    """Base class of the errors of deliveries."""


class SendBackError(DeliveryError):
    """Error for a message that cannot be retried."""


class TransactionError(DeliveryError):
    """Error for a half message that cannot be committed or rolled back."""


class ReplicationError(CommitLakeError):
    """Base class of replication errors; also raised itself for received bytes that do not continue the slave's log."""


class PeerError(ReplicationError):
    """Error for a peer that violates the replication protocol, or requests data that does not exist."""
