"""Tests of the entry point of tasks on Databricks: errors that fail a task, and exit codes that are retried."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlake.jobs.cli.command import JobError
from commitlake.jobs.launch.databricks_task import main
from commitlake.schemas.errors import ExitCode
from tests.support.lakes import GrowingLake, shop_messages

pytestmark = pytest.mark.usefixtures("own_folder")

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    growing = GrowingLake(tmp_path_factory.mktemp("task"))
    growing.write(shop_messages(20, topics=2))
    growing.archive()
    return Path(growing.lake.root)


def wait_never(seconds: float) -> None:
    pytest.fail(f"waits {seconds} s")


def test_a_task_that_succeeds_returns_nothing(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["tps", "--lake", str(lake), "--format", "csv"], sleep=wait_never)
    assert capsys.readouterr().out.startswith("topic,messages,")


def test_the_arguments_are_those_of_the_process(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["commitlake", "--attempts", "2", "tps", "--lake", str(lake), "--quiet"])
    main()
    assert "topic-00" in capsys.readouterr().out


def test_help_succeeds_although_it_raises_system_exit(capsys: pytest.CaptureFixture[str]) -> None:
    main(["tps", "--help"])
    assert "--lake PLACE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["lag", "--at", "2020-01-01"], ExitCode.DAMAGE, "exit code 3 (the job ran, and found damage,"),
        (["tps", "--no-such-option"], ExitCode.USAGE, "exit code 2 (wrong usage, path or lake)"),
    ],
)
def test_a_job_that_does_not_succeed_is_an_error_and_is_not_tried_again(
    arguments: list[str], code: ExitCode, message: str, lake: Path
) -> None:
    job, *options = arguments
    with pytest.raises(JobError) as raised:
        main(["--attempts", "3", job, "--lake", str(lake), *options], sleep=wait_never)
    assert f"commitlake {job} ended with {message}" in str(raised.value)
    assert raised.value.exit_code == code


def write_settings(place: str) -> Path:
    """Write a file of settings in the working directory, with this lake; return its path."""
    settings = Path("settings.toml")
    settings.write_text(f"[tps]\nlake = '{place}'\nquiet = true\n")
    return settings


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a lake in an object store whose server does not run, which is exit code 1."""
    for name, value in (("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("AWS_REGION", "us-east-1")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    return "s3://bucket/lake"


def test_exit_code_1_is_tried_again_with_growing_waits(
    lake: Path, no_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = write_settings(no_server)
    waits: list[float] = []

    def name_another_lake(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            write_settings(str(lake))

    main(["--attempts", "4", "tps", "--config", str(settings)], sleep=name_another_lake)
    assert waits == [60, 120]
    shown = capsys.readouterr()
    assert "topic-00" in shown.out
    assert "attempt 1 of 4 ended with exit code 1; the next begins in 60 s" in shown.err


def test_the_last_attempt_decides(no_server: str) -> None:
    waits: list[float] = []
    with pytest.raises(JobError, match=r"exit code 1 \(an error that may be gone at the next run\)"):
        main(["--attempts", "2", "tps", "--lake", no_server], sleep=waits.append)
    assert waits == [60]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected the name of a job as the first argument, found nothing"),
        (["tsp"], "expected the name of a job as the first argument, found 'tsp'"),
        (["--attempts", "0", "tps"], "--attempts: expected a number from 1 to 10, found '0'"),
        (["--attempts"], "--attempts: expected a number from 1 to 10, found ''"),
        (["--attempts", "x"], "--attempts: expected a number from 1 to 10, found 'x'"),
        (["--attempts", "11", "tps"], "--attempts: expected a number from 1 to 10, found '11'"),
        (["--attempts", "9" * 5000, "tps"], f"--attempts: expected a number from 1 to 10, found '{'9' * 40}'"),
    ],
)
def test_wrong_arguments_of_its_own_are_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(JobError) as raised:
        main(arguments, sleep=wait_never)
    assert str(raised.value) == message


def test_the_process_goes_on_after_a_task(lake: Path) -> None:
    program = f"""
import signal
from commitlake.jobs.launch.databricks_task import main
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
main(["tps", "--lake", {str(lake)!r}, "--quiet"])
assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
print("still here")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("still here\n")
