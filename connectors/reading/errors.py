"""Errors between a store and a table.

CommitLogError
├── OptionError             an option that is unknown or has a wrong value
├── StoreError              a path that gives no store: the cause, and what to do
│   ├── EmptyStoreError     a store without a single segment
│   ├── UnsupportedStoreError  a store whose messages are all in a log of another kind
│   ├── UnreadMessagesError FAILFAST met a store with messages in folders that are not read
│   ├── DataLossError       the data that a stream must read next is gone
│   └── SegmentCutError     a segment that became shorter while it was read
├── CheckpointError         a stream's checkpoint that this source cannot have written
├── IndexMismatchError      an index of the broker that does not match its log: segment, offset, expected, found
├── NoProgressError         a read makes no progress at a position of a log: an error of the reader
├── SplitError              a range that ends inside a record: the log was cut at a position that only looked like one
├── DamagedLogError         FAILFAST met a bad range: segment, offset, expected, found
├── DamagedIndexError       FAILFAST met a bad range of a queue file or an IndexFile: file, bytes, expected, found
└── BodyError               a body that cannot be decompressed within its limits
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class CommitLogError(CommitLakeError):
    """Base class of the folder's errors; the message is for a user."""

    exit_code = ExitCode.USAGE


class OptionError(CommitLogError):
    """Error for an unknown option or an invalid value."""


class StoreError(CommitLogError):
    """Error for a path without a readable store."""


class EmptyStoreError(StoreError):
    """Error for a store without a segment."""


class UnsupportedStoreError(StoreError):
    """Error for a store whose messages are all in a log that cannot be read."""

    exit_code = ExitCode.REFUSED


class UnreadMessagesError(StoreError):
    """Error for a store with messages that are not read, in a mode that fails."""

    exit_code = ExitCode.DAMAGE


class DataLossError(StoreError):
    """Error for deleted segments or stores that a stream had not read yet."""


class SegmentCutError(StoreError):
    """Error for a segment that was truncated during a read; the next read uses its new length."""

    exit_code = ExitCode.FAILED


class CheckpointError(CommitLogError):
    """Error for stream offsets that this source has not written, or not for this store."""


class IndexMismatchError(CommitLogError):
    """Error for an index of the broker that contradicts a record."""


class NoProgressError(CommitLogError):
    """Error for a step of a read without progress: file, physical offset, expected and found.

    Every loop of a read that can be asked to continue raises this instead of running forever.
    """


class SplitError(CommitLogError):
    """Error for a range that does not end at the end of a record."""


class DamagedLogError(CommitLogError):
    """Error for a damaged range of the log, in a mode that fails."""

    exit_code = ExitCode.DAMAGE


class DamagedIndexError(CommitLogError):
    """Error for a damaged range of a queue file or an IndexFile, in a mode that fails."""


class BodyError(CommitLogError):
    """Error for a body that contradicts its flag bits, or exceeds the limits for decompressed bodies."""


def no_progress(path: str, base_offset: int, offset: int, expected: str, found: str) -> NoProgressError:
    """Return the error for a step without progress.

    Args:
        path: path of the segment.
        base_offset: physical offset of its first byte.
        offset: physical offset of the read's position.
        expected: the condition for continuing, in words.
        found: the actual state, in words.
    """
    return NoProgressError(
        f"{path}, byte {offset - base_offset} (physical offset {offset}): expected {expected}, found {found}. "
        "This is an error of the reader: please report it. The options endingOffset and startingOffset can skip it"
    )
