"""The root of this project's errors, and the exit codes of its commands.

    CommitLakeError
    ├── commitlake.schemas          LayoutError, NumberError, CommandError, UnsafeFileError, …
    ├── commitlake.connectors       CommitLogError, LakeError, PackError, S3Error, HBaseError, RocketMQError, …
    ├── commitlake.pipelines        QualityError, RebuildError, RestoreError, VerifyError, …
    ├── commitlake.jobs             JobError
    └── commitlake.broker_lite      StoreError, DeliveryError, ReplicationError, …

Each folder draws its own part of the tree in its module of errors. `tests/unit/schemas/test_errors.py` checks that all
of them are here, and that each can go from process to process.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The number that a command ends with; a scheduler can rely on it. See `commitlake.jobs.cli.command`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DAMAGE = 3
    REFUSED = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141
    TERMINATED = 143


class CommitLakeError(Exception):
    """Root of all errors; the message is for a user.

    An error goes from process to process: its `args` are what it is made with, and they are strings, numbers or None
    (see `commitlake.connectors.worker_errors`).

    Attributes:
        exit_code: the exit code of a command that the error ends; its message then says all that a user needs. None for
            an error that no command expects: the command ends with 1 and prints the error's class, too, and --verbose
            shows the stack trace.
        is_transient: the same may go well later, with nothing changed: a server is busy, or another run was first.
    """

    exit_code: ExitCode | None = None
    is_transient: bool = False
