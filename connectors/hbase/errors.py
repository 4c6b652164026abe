"""Errors of the connection between the lake and HBase.

HBaseError
├── HBaseOptionError        an option that is unknown or has a wrong value
├── UnavailableError        no answer, or none but "later", within the time allowed: who was asked, what was said last
├── HBaseRefusedError       HBase does not do what it was asked: no such table, no permission, a codec it has not
├── TableError              a table that is not one of ours, or not there: what it is, and what to do
├── ProgressError           the table follows another lake, or lost sight of this one: make it anew
├── ConcurrentFollowError   another run has brought the table further meanwhile
├── QuestionError           a question that none of the row keys answers
└── RowError                a message that has no place, or a cell that holds no message
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class HBaseError(CommitLakeError):
    """Base class of all errors of this package."""

    exit_code = ExitCode.FAILED


class HBaseOptionError(HBaseError):
    """An option is unknown or has a wrong value."""

    exit_code = ExitCode.USAGE


class UnavailableError(HBaseError):
    """HBase or its Thrift server did not answer in time."""

    is_transient = True


class HBaseRefusedError(HBaseError):
    """HBase refuses a request; a retry would not help."""


class TableError(HBaseError):
    """A table does not exist, or is not a table of messages."""


class ProgressError(HBaseError):
    """The table's progress does not fit the Delta table that it follows."""


class ConcurrentFollowError(HBaseError):
    """Another run has updated the table's progress. Rows that both wrote are identical."""


class QuestionError(HBaseError):
    """A question that would need to read every row."""


class RowError(HBaseError):
    """A message without a row key, or a row without a message."""
