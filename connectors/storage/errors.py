"""Errors of object stores, such as invalid names, and servers that do not answer.

ObjectStoreError            an invalid URI, endpoint or credentials: what was found, and what to do
├── FileError               one file that cannot be read; others may be
├── S3Error                 of S3
│   └── S3UnavailableError      a temporary failure of a server or network; a later attempt may succeed
└── CloudError              of another object store, or a URI that names none
    ├── CloudNameError          a file's name that the store cannot have
    └── CloudUnavailableError   a temporary failure of a server or network
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode

LATER = "Run it again later: nothing is lost, and nothing is done twice"
"""Advice after a temporary failure."""


class ObjectStoreError(CommitLakeError):
    """An object store cannot be used, or its name is invalid.

    Args:
        cause: description of what was found.
        advice: advice for the user; empty if there is none.
        what: beginning of the message: what was attempted; empty if the cause is a message.

    Attributes:
        cause: description of what was found.
        advice: advice for the user.
        found: what was attempted, and what was found.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, cause: str, advice: str = "", what: str = "") -> None:
        super().__init__(cause, advice, what)  # all, so that the error can be pickled
        self.cause, self.advice = cause, advice
        self.found = f"{what}found {cause}" if what else cause

    def __str__(self) -> str:
        return f"{self.found}. {self.advice}" if self.advice else self.found


class FileError(ObjectStoreError):
    """One file cannot be read, although other files below the same URI may be readable.

    Args:
        place: path or URI of the file.
        expected: description of what was expected.
        cause: description of what was found.
        advice: advice for the user.
        offset: position in the file, in bytes; None for the whole file.
    """

    def __init__(self, place: str, expected: str, cause: str, advice: str, offset: int | None = None) -> None:
        super().__init__(cause, advice, f"{place}: expected {expected}, ")
        self.args = (place, expected, cause, advice, offset)  # arguments for unpickling
        self.expected, self.offset = expected, offset


class S3Error(ObjectStoreError):
    """An S3-compatible object store cannot be used, or its name is invalid."""


class S3UnavailableError(S3Error):
    """An object store is busy, failing or unreachable; a retry may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class CloudError(ObjectStoreError):
    """An object store of Azure or Google, or HDFS, cannot be used, or its name is invalid."""


class CloudNameError(CloudError):
    """An object store cannot store a file of that name."""


class CloudUnavailableError(CloudError):
    """An object store is busy, failing or unreachable; a retry may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True
