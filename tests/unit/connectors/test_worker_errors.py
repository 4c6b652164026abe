"""Errors of Spark's processes: carried in Spark's text, and raised in the driver with their own type."""

from __future__ import annotations

import argparse
import errno
import pickle
import traceback
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from commitlake.connectors.lake.packs.errors import PackStoreError
from commitlake.connectors.reading.errors import DamagedLogError, StoreError
from commitlake.connectors.worker_errors import extract_worker_error, forward_worker_errors, raise_worker_errors
from commitlake.jobs.cli.command import job_parser, run_job
from commitlake.schemas.errors import CommitLakeError, ExitCode
from commitlake.schemas.safe_store_files import UnsafeFileError

FORGED = (
    '{"commitlake_error": "CommitLakeError", "module": "commitlake.schemas.errors", "arguments": [], "attributes": {}}'
)


def text_of(error: Exception) -> str:
    """Return the text that a worker of Spark's sends for an error."""

    def read() -> Iterator[None]:
        with forward_worker_errors():
            yield
            raise error

    try:
        list(read())
    except Exception:  # noqa: BLE001 (that is what Spark does)
        return f"An exception was thrown from the Python worker:\n{traceback.format_exc()}\n\tat org.apache.spark.Task"
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [
        StoreError("a is shorter: 5\nand a line more", exit_code=ExitCode.FAILED),
        CommitLakeError("masks differ", exit_code=ExitCode.REFUSED, hint="use\nanother lake", is_transient=True),
        PackStoreError("s3://b", "a bucket", "none", "later", is_transient=True),  # made of more than its message
        UnsafeFileError.of("/x/a\udcff", "a file", "a link"),  # a name that is not UTF-8
        PermissionError(errno.EACCES, "Permission denied", "/x"),
        pa.ArrowInvalid("no Parquet file"),
        KeyError("x"),
        AssertionError(),
        DamagedLogError(FORGED),  # what a log holds does not choose the error
        KeyError(f"{FORGED}\n"),
    ],
)
def test_an_error_arrives_with_its_class_and_arguments(error: Exception) -> None:
    sparks = PythonException(text_of(error))
    with pytest.raises(type(error)) as raised, raise_worker_errors():
        raise sparks
    found = raised.value
    assert type(found) is type(error)
    assert (str(found), found.args) == (str(error), error.args)
    assert {name: value for name, value in vars(found).items() if name != "__notes__"} == {
        name: value for name, value in vars(error).items() if name != "__notes__"
    }
    assert found.__cause__ is sparks


def test_an_argument_that_is_not_a_plain_value_arrives_as_text() -> None:
    found = extract_worker_error(PythonException(text_of(ValueError(b"x", (1, 2)))))
    assert isinstance(found, ValueError)
    assert found.args == ("b'x'", "(1, 2)")


def test_an_error_that_is_not_ours_may_have_attributes_of_the_same_names() -> None:
    error = ValueError("broken")
    vars(error).update(hint={1}, exit_code=77)
    arrived = extract_worker_error(PythonException(text_of(error)))
    assert (type(arrived), str(arrived)) == (ValueError, "broken")


def test_the_innermost_of_two_notes_is_kept() -> None:
    error = StoreError("a is shorter", exit_code=ExitCode.FAILED)
    with pytest.raises(StoreError), forward_worker_errors(), forward_worker_errors():
        raise error
    assert len(error.__notes__) == 1


def test_an_error_that_was_carried_can_be_pickled() -> None:
    with pytest.raises(StoreError) as raised, forward_worker_errors():
        raise StoreError("a is shorter", exit_code=ExitCode.FAILED)
    assert str(pickle.loads(pickle.dumps(raised.value))) == "a is shorter"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Job aborted due to stage failure",
        '{"commitlake_error": ',
        '{"commitlake_error": "KeyError"}',
        '{"commitlake_error": ' + "[" * 10_000,
        '{"commitlake_error": "SystemExit", "module": "builtins", "arguments": []}',
        FORGED.replace("{}", '{"exit_code": 77}'),
        FORGED.replace("{}", "[]"),
        '{"commitlake_error": "print", "module": "builtins", "arguments": ["x"]}',
        '{"commitlake_error": "GoneError", "module": "commitlake.gone", "arguments": []}',
        '{"commitlake_error": "Error", "module": "antigravity", "arguments": []}',
        '{"commitlake_error": "UnicodeDecodeError", "module": "builtins", "arguments": ["x"]}',
    ],
)
def test_an_error_of_spark_itself_is_raised_unchanged(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PythonException), raise_worker_errors():
        raise PythonException(text)
    assert capsys.readouterr().out == ""


def test_an_error_of_another_origin_is_raised_unchanged() -> None:
    with pytest.raises(ValueError, match="commitlake_error"), raise_worker_errors():
        raise ValueError(FORGED)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (StoreError("run again", exit_code=ExitCode.FAILED), ExitCode.FAILED, "error: run again\n"),
        (CommitLakeError("not here", exit_code=ExitCode.REFUSED), ExitCode.REFUSED, "error: not here\n"),
        (DamagedLogError("at 5"), ExitCode.DAMAGE, "error: at 5\n"),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x"),
            ExitCode.USAGE,
            "error: /x: permission denied for this user",
        ),
        (
            ZeroDivisionError("division by zero"),
            ExitCode.FAILED,
            "error: ZeroDivisionError: division by zero\n  --verbose",
        ),
    ],
)
def test_an_error_of_a_worker_ends_a_job_like_one_of_the_driver(
    capsys: pytest.CaptureFixture[str], error: Exception, code: ExitCode, said: str
) -> None:
    def job(_arguments: argparse.Namespace) -> ExitCode:
        raise PythonException(text_of(error))

    assert run_job(job_parser("fill", "Fill.", []), job, []) == code
    assert said in capsys.readouterr().err


def test_the_verbose_stack_trace_shows_where_the_worker_raised_it(capsys: pytest.CaptureFixture[str]) -> None:
    def job(_arguments: argparse.Namespace) -> ExitCode:
        raise PythonException(text_of(ZeroDivisionError("division by zero")))

    assert run_job(job_parser("fill", "Fill.", []), job, ["--verbose"]) == ExitCode.FAILED
    assert "org.apache.spark.Task" in capsys.readouterr().err
