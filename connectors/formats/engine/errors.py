"""What can go wrong between a store and a table.

CommitLogError
├── OptionError             an option that is unknown or has a wrong value
├── StoreError              a path that gives no store: what it is, and what to do
│   ├── EmptyStoreError     a store without a single segment
│   ├── DataLossError       what a stream was to read next is gone
│   └── SegmentCutError     a segment that became shorter while it was read
├── CheckpointError         a stream's checkpoint that says what no checkpoint of this source can say
├── IndexMismatchError      an index of the broker's that does not fit its log: segment, offset, expected, found
├── NoProgressError         a place of a log behind which a read does not get, although it should: a fault of the reader
├── SplitError              a range that ends inside a record: its log was divided at a place that only looked like one
├── DamagedLogError         FAILFAST met a bad range: segment, offset, expected, found
├── DamagedIndexError       FAILFAST met a bad range of a queue file or an IndexFile: file, bytes, expected, found
└── BodyError               a body that cannot be decompressed within its limits
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class CommitLogError(CommitLakeError):
    """Root of the folder's errors; the message is for a user."""

    exit_code = ExitCode.USAGE


class OptionError(CommitLogError):
    """An option that is unknown or has a wrong value."""


class StoreError(CommitLogError):
    """A path that gives no store that can be read."""


class EmptyStoreError(StoreError):
    """A store that has no segment yet."""


class DataLossError(StoreError):
    """Segments or a store that a stream was to read, and that are there no longer."""


class SegmentCutError(StoreError):
    """A segment that is shorter than when the read began; the next read takes what is there then."""

    exit_code = ExitCode.FAILED


class CheckpointError(CommitLogError):
    """A stream's offsets that this source has not written, or not for this store."""


class IndexMismatchError(CommitLogError):
    """An index of the broker's says something about a record that the record does not say."""


class NoProgressError(CommitLogError):
    """A step of a read that took nothing: file, physical offset, what was expected and what was found.

    Every loop of a read that can be asked to go on raises this in place of going on for ever.
    """


class SplitError(CommitLogError):
    """A range that does not end where a record ends."""


class DamagedLogError(CommitLogError):
    """A range of the log that holds no intact record, where the mode asks to fail."""

    exit_code = ExitCode.DAMAGE


class DamagedIndexError(CommitLogError):
    """A range of a queue file or an IndexFile that holds no entry, where the mode asks to fail."""


class BodyError(CommitLogError):
    """A body that is not what its flag bits say, or larger than its limits once decompressed."""


def no_progress(path: str, base_offset: int, offset: int, expected: str, found: str) -> NoProgressError:
    """The error of a step that took nothing.

    Args:
        path: of the segment.
        base_offset: physical offset of its first byte.
        offset: physical offset at which the read stands.
        expected: what it needs to go on.
        found: what there is.
    """
    return NoProgressError(
        f"{path}, byte {offset - base_offset} (physical offset {offset}): expected {expected}, found {found}. "
        "This is an error of the reader: please report it. The options endingOffset and startingOffset read around it"
    )
