"""What can go wrong with a store.

    StoreError
    ├── OptionError            settings that no store can have
    ├── StoreLockedError       somebody else has the folder open
    ├── StoreFilesError        files that this store, or RocketMQ, could not have written
    │   └── FileSizeError      files of another size than the options say
    ├── ConfigFileError        a file under config/ that is no JSON of RocketMQ's, and whose .bak is none either
    ├── DiskFullError          no room for the next file; nothing was written
    ├── MessageRefusedError    a message that a broker refuses, as MESSAGE_ILLEGAL
    ├── IndexDisabledError     a look-up by key in a store that keeps no index
    ├── UnsupportedError       something that a store's layout has no place for
    └── StoreUnusableError     closed, or a write to its files failed half-way; opening it anew recovers it
        └── FileCutError       another process has shortened a file of the open store

Bytes that are wrong are `schemas.layouts.errors.LayoutError`.
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError


class StoreError(CommitLakeError):
    """A store cannot do what it was asked."""


class OptionError(StoreError, ValueError):
    """Settings that no store can have."""


class StoreLockedError(StoreError):
    """Another store, or a broker, has this folder open."""


class StoreFilesError(StoreError):
    """The folder holds files that do not fit one another or the options."""


class FileSizeError(StoreFilesError):
    """Files are of another size than the options say.

    Attributes:
        option: name of the option that would have to say so.
        size: the size that they have; None where they do not agree.
    """

    def __init__(self, message: str, option: str, size: int | None) -> None:
        super().__init__(message if size is None else f"{message}; open the store with {option}={size}")
        self.option = option
        self.size = size


class ConfigFileError(StoreError):
    """A file under `config/` cannot be read, nor its `.bak`."""


class DiskFullError(StoreError):
    """The disk has no room for the next file; nothing was written."""


class MessageRefusedError(StoreError, ValueError):
    """A message that the store does not take; nothing was written."""


class IndexDisabledError(StoreError):
    """A look-up by key in a store that keeps no index."""


class UnsupportedError(StoreError):
    """A store's layout has no place for this, whatever its settings."""


class StoreUnusableError(StoreError):
    """The store is closed, or a failed write left it to be recovered by the next `open`."""


class FileCutError(StoreUnusableError):
    """A file of the open store is shorter than it was: another process has cut it."""
