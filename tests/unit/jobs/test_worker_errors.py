"""The text that Spark makes of a worker's exception, and what comes out of it."""

from __future__ import annotations

import argparse

import pytest

from commitlake.connectors.formats.engine.errors import SegmentCutError, SplitError
from commitlake.jobs.cli.command import ExitCode, job_parser, run_job
from commitlake.jobs.cli.worker_errors import WorkerError, worker_error

HEAD = "An exception was thrown from the Python worker:\n"
FRAMES = """Traceback (most recent call last):
  File "/x/task.py", line 118, in _read
    raise it
    ^^^^^^^^
"""

ANOTHER = "\n\nDuring handling of the above exception, another exception occurred:\n\n"


ERRORS = "commitlake.connectors.formats.engine.errors"


class SparkError(Exception):
    """Stands for an error of Spark's: its words alone are looked at."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"{HEAD}{FRAMES}{ERRORS}.SegmentCutError: a is shorter: 5\nand a line more",
            WorkerError(SegmentCutError, "SegmentCutError", "a is shorter: 5\nand a line more"),
        ),
        (
            f"{HEAD}{FRAMES}KeyError: 'x'{ANOTHER}{FRAMES}{ERRORS}.SplitError: no end",
            WorkerError(SplitError, "SplitError", "no end"),
        ),
        (f"{HEAD}{FRAMES}KeyError: 'x'", WorkerError(None, "KeyError", "'x'")),
        (f"{HEAD}{FRAMES}AssertionError", WorkerError(None, "AssertionError", "AssertionError")),
        (f"{HEAD}{FRAMES}connectors.gone.Error: x", WorkerError(None, "Error", "x")),
        (f"{HEAD}{FRAMES}{ERRORS}.annotations: x", WorkerError(None, "annotations", "x")),
        (f"{HEAD}{FRAMES}subprocess.Popen: x", WorkerError(None, "Popen", "x")),
        (f"{HEAD}{FRAMES}", None),
        ("Job aborted due to stage failure", None),
        ("", None),
    ],
)
def test_a_workers_exception_is_found_in_sparks_words(text: str, expected: WorkerError | None) -> None:
    assert worker_error(SparkError(text)) == expected


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (f"{ERRORS}.SegmentCutError: run again", ExitCode.FAILED, "error: run again\n"),
        (f"{ERRORS}.DamagedLogError: at 5", ExitCode.DAMAGE, "error: at 5\n"),
        (
            "ZeroDivisionError: division by zero",
            ExitCode.FAILED,
            "error: ZeroDivisionError: division by zero\n  --verb",
        ),
    ],
)
def test_a_workers_exception_ends_a_job_as_the_drivers_own_would(
    capsys: pytest.CaptureFixture[str], line: str, code: ExitCode, said: str
) -> None:
    def job(_arguments: argparse.Namespace) -> ExitCode:
        raise SparkError(f"{HEAD}{FRAMES}{line}")

    assert run_job(job_parser("fill", "Fill.", []), job, []) == code
    assert said in capsys.readouterr().err
