"""Errors of reading logs.

CommitLogError
├── StoreError              a path that gives no store, or lost data that a stream must read next
│   ├── EmptyStoreError     a store without a single segment
│   └── UnsupportedStoreError  a store whose messages are all in a log of another kind
├── IndexMismatchError      an index of the broker that does not match its log: segment, offset, expected, found
├── DamagedLogError         FAILFAST met a bad range: segment, offset, expected, found
└── BodyError               a body that cannot be decompressed within its limits
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class CommitLogError(CommitLakeError):
    """Base class of the errors of this package; the message is for a user."""

    exit_code = ExitCode.USAGE


class StoreError(CommitLogError):
    """Error for a path without a readable store, and for deleted segments or stores that a stream had not read yet."""


class EmptyStoreError(StoreError):
    """Error for a store whose log has no segment."""


class UnsupportedStoreError(StoreError):
    """Error for a store whose messages are all in a log of an unsupported kind."""

    exit_code = ExitCode.REFUSED


class IndexMismatchError(CommitLogError):
    """Error for an index file or queue of the broker that contradicts a record in the log."""


class DamagedLogError(CommitLogError):
    """Error for a damaged range of the log, in a mode in which damage is an error."""

    exit_code = ExitCode.DAMAGE


class BodyError(CommitLogError):
    """Error for a body whose compression contradicts its flag bits, or that exceeds the limits when decompressed."""


def no_progress_error(path: str, base_offset: int, offset: int, expected: str, found: str) -> CommitLogError:
    """Return the error for a read that stays at an offset, and would otherwise never end.

    Args:
        path: path of the segment.
        base_offset: physical offset of its first byte.
        offset: physical offset of the read's position.
        expected: the condition for continuing, in words.
        found: the actual state, in words.
    """
    return CommitLogError(
        f"{path}, byte {offset - base_offset} (physical offset {offset}): expected {expected}, found {found}. "
        "This is an error of the reader: please report it. The options endingOffset and startingOffset can skip it"
    )
