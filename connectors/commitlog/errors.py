"""What can go wrong between a store and a table.

CommitLogError
├── OptionError             an option that is unknown or has a wrong value
├── StoreError              a path that gives no store: what it is, and what to do
│   ├── EmptyStoreError     a store without a single segment
│   ├── DataLossError       what a stream was to read next is gone
│   └── SegmentCutError     a segment that became shorter while it was read
├── CheckpointError         a stream's checkpoint that says what no checkpoint of this source can say
├── IndexMismatchError      an index of the broker's that does not fit its log: segment, offset, expected, found
├── SplitError              a range that ends inside a record: its log was divided at a place that only looked like one
├── DamagedLogError         FAILFAST met a bad range: segment, offset, expected, found
└── BodyError               a body that cannot be decompressed within its limits
"""

from __future__ import annotations


class CommitLogError(Exception):
    """Root of the folder's errors; the message is for a user."""


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


class CheckpointError(CommitLogError):
    """A stream's offsets that this source has not written, or not for this store."""


class IndexMismatchError(CommitLogError):
    """An index of the broker's says something about a record that the record does not say."""


class SplitError(CommitLogError):
    """A range that does not end where a record ends."""


class DamagedLogError(CommitLogError):
    """A range of the log that holds no intact record, where the mode asks to fail."""


class BodyError(CommitLogError):
    """A body that is not what its flag bits say, or larger than its limits once decompressed."""
