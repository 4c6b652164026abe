"""Errors of the connection between the lake and HBase.

HBaseError
├── HBaseOptionError        an option that is unknown or has a wrong value
├── UnavailableError        no answer, or only temporary errors, within the time allowed: the server and the last error
├── HBaseRefusedError       HBase refuses the request: no such table, no permission, a codec that is not installed
├── TableError              a table that does not exist or is not one of ours: what was found, and what to do
├── ProgressError           the table follows another lake, or can no longer follow this one: recreate it
├── ConcurrentFollowError   another run has updated the table meanwhile
├── QuestionError           a question that none of the row keys answers
└── RowError                a message that cannot be stored, or a cell that holds no message
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
