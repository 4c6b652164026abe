"""What can go wrong between the lake and HBase.

HBaseError
├── OptionError             an option that is unknown or has a wrong value
├── UnavailableError        no answer, or none but "later", within the time allowed: who was asked, what was said last
├── RefusedError            HBase does not do what it was asked: no such table, no permission, a codec it has not
├── TableError              a table that is not one of ours, or not there: what it is, and what to do
├── ProgressError           the table follows another lake, or lost sight of this one: make it anew
├── ConcurrentFollowError   another run has brought the table further meanwhile
├── QuestionError           a question that none of the row keys answers
└── RowError                a message that has no place, or a cell that holds no message
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class HBaseError(CommitLakeError):
    """Root of the folder's errors; the message is for a user."""

    exit_code = ExitCode.FAILED


class OptionError(HBaseError):
    """An option that is unknown or has a wrong value."""

    exit_code = ExitCode.USAGE


class UnavailableError(HBaseError):
    """HBase, or its Thrift server, did not answer within the time allowed."""

    is_transient = True


class RefusedError(HBaseError):
    """HBase will not do it, however often it is asked."""


class TableError(HBaseError):
    """A table that is not there, or is not one of ours."""


class ProgressError(HBaseError):
    """What the table says of itself does not fit the Delta table that it should follow."""


class ConcurrentFollowError(HBaseError):
    """Another run has written the table's progress meanwhile; rows that both wrote are the same."""


class QuestionError(HBaseError):
    """A question that would need every row to be read."""


class RowError(HBaseError):
    """A message that has no row key, or a row that holds no message."""
