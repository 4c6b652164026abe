"""Base class of this project's errors, and the exit codes of its commands.

    CommitLakeError                 also raised itself, with the exit code as an argument
    ├── UsageError                  what was given cannot be used; the command exits with 2
    ├── UnavailableError            something does not answer, or not yet; the command exits with 1
    ├── ConcurrentRunError          another run was faster; the command exits with 4
    ├── commitlake.schemas          LayoutError, NumberError, CommandError, UnsafeFileError, …
    ├── commitlake.connectors       CommitLogError, LakeError, PackError, S3Error, HBaseError, RocketMQError, …
    ├── commitlake.pipelines        QualityError, ReplayError, EvidenceError, …
    ├── commitlake.jobs             JobError, MissingPackageError
    └── commitlake.broker_lite      StoreError, DeliveryError, ReplicationError: see `broker_lite.errors`

An error has a class of its own if a caller handles it apart from others, or if many raise it. Each folder describes its
own part of the tree in its module of errors. `tests/unit/schemas/test_errors.py` checks that the tree is complete, and
that every error can be pickled.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command; its numbers do not change, so schedulers can rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DAMAGE = 3
    REFUSED = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


class CommitLakeError(Exception):
    """Base class of all errors; the message is for a user.

    Errors are sent between processes: `args` are the constructor's arguments, and they are strings, numbers or None
    (see `commitlake.connectors.worker_errors`).

    Attributes:
        exit_code: exit code of a command that fails with the error; its message is then all that a user needs. None for
            an unexpected error: the command exits with 1 and also prints the error's class, and --verbose shows the
            stack trace.
        hint: advice on what to do, or empty.
        is_transient: True if the operation may succeed later without changes, for example because a server is busy or
            another run was first.
    """

    exit_code: ExitCode | None = None
    hint: str = ""
    is_transient: bool = False

    def __init__(
        self, *arguments: object, exit_code: ExitCode | None = None, hint: str = "", is_transient: bool = False
    ) -> None:
        """Initialize the error; parameters that are not given keep the values that the class declares.

        Args:
            arguments: the message, or what the class makes it of.
        """
        super().__init__(*arguments)
        if exit_code is not None:
            self.exit_code = exit_code
        if hint:
            self.hint = hint
        if is_transient:
            self.is_transient = True


class UsageError(CommitLakeError):
    """Error for invalid input: a wrong option or combination of options, or a path or file that cannot be used."""

    exit_code = ExitCode.USAGE


class UnavailableError(CommitLakeError):
    """Error for a service or data that is not available yet; a later run may succeed."""

    exit_code = ExitCode.FAILED
    is_transient = True


class ConcurrentRunError(CommitLakeError):
    """Error for a conflict with another run at the same time; a later run may succeed."""

    exit_code = ExitCode.REFUSED
    is_transient = True
