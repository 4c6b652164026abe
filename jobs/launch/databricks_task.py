"""The command `commitlake-task`: run a job as a task of type `python_wheel_task` on Databricks.

Databricks calls the entry point as a function, in a Python process that it keeps. It ignores the function's result, and
a SystemExit fails the task, also that of `sys.exit(0)`. This entry point therefore returns for exit code 0, and raises
an error for all others. It leaves signals and standard streams alone, and never ends the process, as `commitlake` does.

    commitlake-task [--attempts N] JOB [arguments]

Databricks itself would retry a task after any failure. A retry helps only after exit code 1, and after exit code 3 it
could succeed and so hide what the first attempt has found. So retries are made here, by `--attempts`, and the tasks of
`databricks.yml` have none.

`archive`, `audit`, `verify` and `rebuild` run on the cluster's Spark unless `--local` is given.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.cli.main import JOBS
from commitlake.jobs.cli.main import main as run_command
from commitlake.schemas.errors import ExitCode
from commitlake.schemas.layouts.integer_parsing import parse_int

FIRST_WAIT_SECONDS = 60.0
"""Seconds between the first two attempts; each further wait is twice as long."""
MAX_ATTEMPTS = 10
"""Largest number of attempts; the last wait is then four hours."""
_MEANINGS = {
    ExitCode.FAILED: "an error that may be gone at the next run",
    ExitCode.USAGE: "wrong usage, path or lake",
    ExitCode.DAMAGE: "the job ran, and found damage, a gap or a difference",
    ExitCode.REFUSED: "refused",
    ExitCode.INTERRUPTED: "interrupted",
}


def main(argv: Sequence[str] | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Run a job, and retry it after exit code 1; raise an error if it does not succeed.

    Args:
        argv: arguments; by default those of the task, which Databricks puts into `sys.argv`.
        sleep: waits for a number of seconds.

    Raises:
        JobError: if the job's exit code is not 0. The job's own message is on standard error.
    """
    attempts, arguments = parse_task(sys.argv[1:] if argv is None else argv)
    code = _run_job(arguments)
    for attempt in range(1, attempts):
        if code != ExitCode.FAILED:
            break
        seconds = FIRST_WAIT_SECONDS * 2 ** (attempt - 1)
        after = f"attempt {attempt} of {attempts} ended with exit code 1; the next begins in {seconds:.0f} s"
        print(f"commitlake-task: {after}", file=sys.stderr)
        sleep(seconds)
        code = _run_job(arguments)
    if code != ExitCode.OK:
        raise _task_error(arguments, code)


def parse_task(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """Return how often the job may be tried, and the job's command line.

    Raises:
        JobError: if one of the two is wrong.
    """
    text = "1"
    given = list(arguments)
    if given[:1] == ["--attempts"]:
        text, given = "".join(given[1:2]), given[2:]
    attempts = parse_int(text, 1, MAX_ATTEMPTS)
    if attempts is None:
        raise JobError(f"--attempts: expected a number from 1 to {MAX_ATTEMPTS}, found {text[:40]!r}")
    if not given or given[0] not in JOBS:
        found = repr(given[0]) if given else "nothing"
        raise JobError(
            f"expected the name of a job as the first argument, found {found}", "commitlake --help lists the jobs"
        )
    return attempts, given


def _run_job(arguments: Sequence[str]) -> int:
    """Run a job in this process, and return its exit code."""
    try:
        return run_command(arguments, on_spark=True)
    except SystemExit as error:  # --help, or wrong usage
        if error.code is None or isinstance(error.code, int):
            return error.code or ExitCode.OK
        print(error.code, file=sys.stderr)
        return ExitCode.FAILED


def _task_error(arguments: Sequence[str], code: int) -> JobError:
    known = {int(each) for each in ExitCode}
    exit_code = ExitCode(code) if code in known else ExitCode.FAILED
    meaning = f" ({_MEANINGS[exit_code]})" if exit_code in _MEANINGS else ""
    message = f"commitlake {arguments[0]} ended with exit code {code}{meaning}: see its message above"
    return JobError(message, exit_code=exit_code)
