"""Errors of object stores: wrong names, and servers that do not answer.

S3Error                     a URI, an endpoint or credentials that do not do: what was found, and what to do
└── S3UnavailableError      a server or a network that does not do now, and may later
"""

from __future__ import annotations

from commitlake.schemas.errors import CommitLakeError, ExitCode


class S3Error(CommitLakeError):
    """An object store, or the name of one, cannot be used.

    Attributes:
        found: what there is.
        advice: what to do.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found, advice)  # both, so that the error can be pickled
        self.found = found
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.found}. {self.advice}"


class S3UnavailableError(S3Error):
    """An object store is busy, failing or unreachable; a retry may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True
